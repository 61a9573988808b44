"""AMCL, figure of similarities: positive and negative pairs for 1, 3 and 5 augmentations.

    python experiments/amcl_histograms.py --budget small --photos FOLDER

Cost: 6 trainings a seed. On two cores it takes 2 minutes at smoke.

Claim: with more augmentations the similarities of positive and negative pairs overlap more with
SimCLR, and less with AMCL.

The figure on the authors' poster at ECCV 2024 (Wang et al. 2023, arXiv:2310.05615), which prints no
numbers. The verdicts measure the chance of a higher similarity in a positive pair than in a
negative pair.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from experiments.reproduction.cells import AUGMENTATIONS, Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.embeddings import separation
from experiments.reproduction.experiment import Experiment, Outcome, Tested, Trained, described
from experiments.reproduction.figures import HistogramPanel, histograms_figure
from experiments.reproduction.interval_table import interval_columns, percent_of, readable
from experiments.reproduction.spaces import choose_items, model_file, open_trained
from experiments.reproduction.trends import changes_of, decided, over_seeds, seeds_tested
from mtcon_ray.data.batch import send
from mtcon_ray.data.views import draw_parameters, make_views
from mtcon_ray.methods import METHODS, Method
from mtcon_ray.methods.amcl import AMCL
from mtcon_ray.methods.base import ContrastiveMethod
from mtcon_ray.records.results import TrialResult
from mtcon_ray.training import checkpoint

DATA = "stl10"
TITLES = {"simclr": "SimCLR", "amcl": "AMCL"}
# Quantities of a pair, with their unit on an axis.
HEADS, BACKBONE = "heads", "encoder"
UNITS = {HEADS: "cosine / temperature (no unit)", BACKBONE: "cosine of features (no unit)"}
PAIRS = 500
CHUNK = 64  # images whose views are encoded together
NOTES = (
    f"Pairs: two views of each of at most {PAIRS} images of the validation split, and views of two "
    "different images, with the augmentations of the training. Cosines of heads are divided by the "
    "temperature, which AMCL learns for each pair; the mean over its three heads.",
    "Separated: the chance that a positive pair is more similar than a negative one, in percent, "
    "with its 95 % interval over seeds by Student's t.",
    "AMCL's lowest temperature is the paper's 1e-5 at the budget paper, and 0.05 at any other.",
)


class Similarities(NamedTuple):
    """Similarities of P positive and P negative pairs."""

    positive_P: np.ndarray
    negative_P: np.ndarray


# By method, number of augmentations and quantity, with an entry per seed.
Found = dict[tuple[str, int, str], list[Similarities]]


def cell(method: str, count: int) -> Cell:
    """Returns the training of a method with this number of augmentations."""
    return Cell(DATA, f"{method}-{count}")


def cells(setting: Setting) -> list[Cell]:
    """Returns both methods with all numbers of augmentations."""
    return [cell(method, count) for method in TITLES for count in AUGMENTATIONS]


def finish(setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
    """Returns the pairs' separation, the histograms of the first seed, and the verdicts."""
    found: Found = {}
    for method in TITLES:
        for count in AUGMENTATIONS:
            each = trained[cell(method, count)]
            for trial in each.row.finished:
                pairs = similarities(setting, each, trial)
                for quantity, values in pairs.items():
                    found.setdefault((method, count, quantity), []).append(values)
    separated = {key: [separation(*seed) for seed in seeds] for key, seeds in found.items()}
    table = pd.DataFrame(
        {
            "of": quantity,
            "method": TITLES[method],
            "augmentations": count,
            "seeds": len(values),
            **interval_columns("separated (%)", percent_of(over_seeds(values))),
        }
        for quantity in UNITS
        for method in TITLES
        for count in AUGMENTATIONS
        for values in [separated.get((method, count, quantity), [])]
    )
    pictures = {}
    if len(found) == len(TITLES) * len(AUGMENTATIONS) * len(UNITS):
        pictures["Similarities of pairs"] = draw({key: seeds[0] for key, seeds in found.items()})
    paired = {key: v for key, v in separated.items() if trained[cell(*key[:2])].complete}
    verdicts = decided(setting, tests_of(paired))
    return Outcome(table, pictures, verdicts, NOTES, readable=readable(table))


def learned_method(path: Path) -> Method:
    """Returns the method in a kept network's file, with its learned parameters, on the CPU."""
    state = checkpoint.load(path)
    spec = checkpoint.spec_in(path, state)
    method = METHODS[spec.method.name](spec.method, spec.problem(state["sizes"]))
    method.load_state_dict(method.state_dict() | state["method"])
    return method


def similarities(setting: Setting, trained: Trained, trial: TrialResult) -> dict[str, Similarities]:
    """Returns a training's similarities of positive and negative pairs by quantity."""
    opened = open_trained(trained.row, trial, setting.root)
    method = learned_method(model_file(trained.row, trial))
    # In random order, because neighbours in a table may have the same class.
    rows = np.random.default_rng(0).permutation(choose_items(opened, "val", PAIRS))
    views = opened.spec.views
    images = torch.from_numpy(opened.dataset.images[rows])
    generator = torch.Generator().manual_seed(0)
    parameters = draw_parameters(2 * len(rows), images.shape[1], views, generator)
    parts = []
    network = opened.network.eval()
    with torch.inference_mode():
        for start in range(0, len(rows), CHUNK):
            chunk = slice(2 * start, 2 * (start + CHUNK))
            pixels = send(images[start : start + CHUNK], opened.device)
            h_ND = network.encoder(make_views(pixels, parameters.rows(chunk), views))
            parts.append({BACKBONE: h_ND, **network.apply_heads(h_ND)})
        whole = {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}
        features = F.normalize(whole.pop(BACKBONE), dim=1)
        in_heads = [pairs_of(z_ND, scaled_by(method, head)) for head, z_ND in whole.items()]
    heads = Similarities(*(np.mean(kind, axis=0) for kind in zip(*in_heads, strict=True)))
    return {HEADS: heads, BACKBONE: pairs_of(features, cosines)}


def pairs_of(z_ND: Tensor, measure: Callable[[Tensor, Tensor], Tensor]) -> Similarities:
    """Returns the measure of both views of an item, and of views of neighbouring items.

    Rows 2 i and 2 i + 1 are the views of item i.
    """
    first_PD, second_PD = z_ND[0::2], z_ND[1::2]
    positive_P, negative_P = measure(first_PD, second_PD), measure(first_PD, second_PD.roll(1, 0))
    return Similarities(positive_P.double().numpy(), negative_P.double().numpy())


def cosines(z_PD: Tensor, other_PD: Tensor) -> Tensor:
    """Returns the cosines of unit rows."""
    return (z_PD * other_PD).sum(dim=1)


def scaled_by(method: Method, head: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a measure of pairs: their cosine divided by the method's temperature."""

    def measure(z_PD: Tensor, other_PD: Tensor) -> Tensor:
        if isinstance(method, AMCL):
            phi = method.temperature_net
            temperature = method.adaptive.temperature(cosines(phi(z_PD), phi(other_PD)))
        else:
            assert isinstance(method, ContrastiveMethod)
            temperature = torch.as_tensor(method.temperature(head))
        return cosines(z_PD, other_PD) / temperature

    return measure


def draw(found: Mapping[tuple[str, int, str], Similarities]) -> bytes:
    """Draws a row for each method and quantity, a column for each number of augmentations."""
    panels = []
    for quantity, unit in UNITS.items():
        for method, title in TITLES.items():
            row = {count: found[method, count, quantity] for count in AUGMENTATIONS}
            everything = np.concatenate([np.concatenate(pairs) for pairs in row.values()])
            # Equal axes in a row, without its few extreme pairs.
            low, high = np.quantile(everything, [0.002, 0.998])
            panels += [
                HistogramPanel(
                    f"{title}, {quantity}, {count} aug.",
                    unit,
                    {"two views of an image": positive, "two images": negative},
                    (float(low), float(high)),
                )
                for count, (positive, negative) in row.items()
            ]
    return histograms_figure(panels, columns=len(AUGMENTATIONS))


def tests_of(separated: Mapping[tuple[str, int, str], list[float]]) -> list[Tested]:
    """Returns the tests on SimCLR with more augmentations, and on AMCL against SimCLR."""
    found = []
    for quantity in UNITS:
        by_count = [separated.get(("simclr", count, quantity), []) for count in AUGMENTATIONS]
        text = f"{quantity}: SimCLR separates pairs less with more augmentations"
        found.append(seeds_tested(text, [-change for change in changes_of(by_count)]))
        for count in AUGMENTATIONS:
            amcl, simclr = (separated.get((m, count, quantity), []) for m in ("amcl", "simclr"))
            leads = [a - b for a, b in zip(amcl, simclr, strict=True)] if amcl and simclr else []
            text = f"{quantity}: AMCL separates pairs more than SimCLR, augmentations: {count}"
            found.append(seeds_tested(text, leads))
    return found


EXPERIMENT = Experiment(
    *described(__file__, __doc__), cells, finish, tests=lambda setting, trained: tests_of({})
)

if __name__ == "__main__":
    main(EXPERIMENT)
