"""MultiSupCon, figure 2: the projector's output after the first and the last epoch by UMAP.

    python experiments/multisupcon_umap.py --budget small --photos FOLDER

Cost: trainings of MultiSupCon's table, and three more trainings of an epoch a seed. UMAP needs the
extra `figures` and takes a minute or two.

Claim: training brings images with overlapping label sets together, MultiSupCon's more than that of
SimCLR and of SupCon on equal sets.

The paper shows only pictures. The verdicts measure them by the Jaccard overlap of the label sets of
10 nearest neighbours, minus the overlap of random pairs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.embeddings import (
    NEIGHBOURS,
    NO_UMAP,
    halving_attributes,
    neighbour_overlap,
    umap_if_installed,
)
from experiments.reproduction.experiment import Experiment, Outcome, Tested, Trained, described
from experiments.reproduction.figures import PlanePanel, plane_figure
from experiments.reproduction.interval_table import interval_columns, readable
from experiments.reproduction.spaces import choose_items, head_spaces, open_trained
from experiments.reproduction.trends import decided, over_seeds, seeds_tested
from mtcon_ray.spec.problem import UNKNOWN_BIT

DATA, LABEL = "celeba_64", "40_attributes"
SIMCLR, MULTI, EQUAL = "simclr", "multisupcon-0.5", "multisupcon-1.0"
TITLES = {SIMCLR: "SimCLR", MULTI: "MultiSupCon, c = 0.5", EQUAL: "SupCon on equal sets"}
FIRST, LAST = "first", "last"
LIMIT = 4000  # items: with six times as many, UMAP takes minutes
NOTES = (
    f"Overlap: the Jaccard index of an item's label set and those of its {NEIGHBOURS} nearest "
    "neighbours by cosine of the projector's output, less that of random pairs; the mean over "
    "seeds with its 95 % interval by Student's t.",
    f"At most {LIMIT} images of the training split, without augmentation. The paper has all of "
    "them, in an augmented view, and three dimensions instead of two. Colours: the two attributes "
    "that divide the images into the most equal groups.",
    "First epoch: a training of one epoch with a schedule of its own and the same seed, since "
    "trainings keep the network of their last epoch.",
)


@dataclass(frozen=True)
class Space:
    """The projector's output [N, D] of N items and their label sets [N, L] with L names."""

    z_ND: np.ndarray
    sets_NL: np.ndarray
    names: tuple[str, ...]


def cell(system: str, epoch: str) -> Cell:
    """Returns the training of a single epoch for FIRST, otherwise the full training."""
    return Cell(DATA, system, changes=(("train.epochs", 1),) if epoch == FIRST else ())


def cells(setting: Setting) -> list[Cell]:
    """Returns all methods after their first and their last epoch."""
    return [cell(system, epoch) for epoch in (FIRST, LAST) for system in TITLES]


def open_space(setting: Setting, trained: Trained, index: int) -> Space:
    """Returns the space of a training's projector. `index` counts its seeds."""
    opened = open_trained(trained.row, trained.row.finished[index], setting.root)
    column, table = trained.place(LABEL)[1], opened.dataset.table
    rows = choose_items(opened, "train", LIMIT)
    rows = rows[(table.multi_hot[column][rows] != UNKNOWN_BIT).all(axis=1)]
    (z_ND,) = head_spaces(opened, rows).values()
    return Space(z_ND, table.multi_hot[column][rows], table.multi_hot_names[column])


def finish(setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
    """Returns the overlaps of neighbours, a picture if umap-learn is installed, and verdicts."""
    spaces = {
        (system, epoch): [open_space(setting, each, i) for i in range(len(each.row.finished))]
        for epoch in (FIRST, LAST)
        for system in TITLES
        for each in [trained[cell(system, epoch)]]
    }
    overlaps = {
        key: [neighbour_overlap(space.z_ND, space.sets_NL) for space in found]
        for key, found in spaces.items()
    }
    table = pd.DataFrame(
        {
            "method": TITLES[system],
            "epoch": epoch,
            "seeds": len(found),
            **interval_columns("overlap with neighbours", over_seeds(found)),
        }
        for (system, epoch), found in overlaps.items()
    )
    paired = {key: v if trained[cell(*key)].complete else [] for key, v in overlaps.items()}
    verdicts = decided(setting, tests_of(paired))
    place, pictures, notes = umap_if_installed(), {}, list(NOTES)
    if place is None:
        notes.append(f"There is no picture: {NO_UMAP}.")
    elif all(spaces.values()):
        panels = [
            panel(f"{TITLES[system]}, {epoch} epoch", found[0], place(found[0].z_ND))
            for (system, epoch), found in spaces.items()
        ]
        pictures["Projector by UMAP"] = plane_figure(panels, "UMAP", columns=len(TITLES))
    return Outcome(table, pictures, verdicts, notes, readable=readable(table, digits=3))


def tests_of(paired: Mapping[tuple[str, str], list[float]]) -> list[Tested]:
    """Returns the tests on MultiSupCon's overlaps by seed, {} before the trainings."""
    compared = {
        "after the last epoch above the first": (MULTI, FIRST),
        "above that of SimCLR": (SIMCLR, LAST),
        "above that of SupCon": (EQUAL, LAST),
    }
    last = paired.get((MULTI, LAST), [])
    return [
        above(f"overlap of {TITLES[MULTI]} {words}", last, paired.get(key, []))
        for words, key in compared.items()
    ]


def above(claim: str, more: list[float], less: list[float]) -> Tested:
    """Returns the test of larger overlaps in one training than in another, paired by seed."""
    pairs = zip(more, less, strict=True) if len(more) == len(less) else ()
    return seeds_tested(claim, [a - b for a, b in pairs], in_points=False)


def panel(title: str, space: Space, place_N2: np.ndarray) -> PlanePanel:
    """Returns the panel with items coloured by two attributes, in four groups."""
    a, b = halving_attributes(space.sets_NL)
    first, second = space.names[a], space.names[b]
    names = ["neither", second, first, "both"]
    code_N = 2 * space.sets_NL[:, a].astype(np.int64) + space.sets_NL[:, b]
    return PlanePanel(title, place_N2, code_N, names)


EXPERIMENT = Experiment(
    *described(__file__, __doc__), cells, finish, tests=lambda setting, trained: tests_of({})
)

if __name__ == "__main__":
    main(EXPERIMENT)
