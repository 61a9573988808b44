"""MTCon, figures 4 and 5: every head's projection space in the plane by t-SNE.

    python experiments/tsne_heads.py --budget small --photos FOLDER

Cost: trainings shared with the tables. t-SNE takes seconds at smoke, a minute at small.

Claim: the space of each task's head groups the images by the label of that task.

The paper shows only pictures. The verdicts measure them: the 10 nearest neighbours predict a label
more often in its own head's space than in the spaces of the other heads.
"""

from collections.abc import Mapping
from statistics import fmean

import pandas as pd

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.command import main
from experiments.reproduction.data import DATA_SETS
from experiments.reproduction.embeddings import NEIGHBOURS, neighbour_accuracy, tsne
from experiments.reproduction.experiment import Experiment, Outcome, Tested, Trained, described
from experiments.reproduction.figures import PlanePanel, plane_figure
from experiments.reproduction.interval_table import interval_columns, percent_of, readable
from experiments.reproduction.spaces import choose_items, head_spaces, open_trained
from experiments.reproduction.trends import decided, over_seeds, seeds_tested

CELLS = [Cell(data, "mtcon") for data in ("zappos50k", "medic")]
LIMIT = 5000  # items: with 10,000 items, t-SNE takes minutes
NOTES = (
    f"Neighbours: the share of test items whose label is the most frequent one among their "
    f"{NEIGHBOURS} nearest other test items by cosine, in percent, the mean over seeds with its "
    "95 % interval by Student's t.",
    f"Pictures: the first seed's heads on at most {LIMIT} test items, without augmentation; t-SNE "
    "with perplexity 30, started from two principal components. The paper names no settings.",
)

# A label's accuracy by neighbours in the space of a head, an entry per seed, by (head, label).
Accuracies = dict[tuple[str, str], list[float]]


def cells(setting: Setting) -> list[Cell]:
    """Returns MTCon with learned weights on both data sets, shared with the tables."""
    return CELLS


def finish(setting: Setting, trained: Mapping[Cell, Trained]) -> Outcome:
    """Returns accuracies by neighbours in each space, a picture per data set, and verdicts."""
    rows, pictures, tests = [], {}, []
    for cell in CELLS:
        found = measure(setting, trained[cell])
        rows += [
            {
                "data": DATA_SETS[cell.data].title,
                "label": trained[cell].name_label(label),
                "head": trained[cell].name_label(head),
                "own": "yes" if head == label else "",
                **interval_columns("neighbours (%)", percent_of(over_seeds(accuracies))),
            }
            for (head, label), accuracies in sorted(found.items(), key=lambda each: each[0][::-1])
        ]
        tests += [own_is_above(trained[cell], label, found) for label in cell.tasks]
        if trained[cell].finished:
            pictures[f"Heads on {DATA_SETS[cell.data].title}"] = draw(setting, trained[cell])
    table = pd.DataFrame(rows)
    verdicts = decided(setting, tests)
    return Outcome(table, pictures, verdicts, NOTES, readable=readable(table))


def unmeasured(setting: Setting, trained: Mapping[Cell, Trained]) -> list[Tested]:
    """Returns the tests of all claims before the trainings, without accuracies."""
    return [own_is_above(trained[cell], label, {}) for cell in CELLS for label in cell.tasks]


def measure(setting: Setting, trained: Trained) -> Accuracies:
    """Returns the accuracies by neighbours of every label in the space of every head."""
    found: Accuracies = {}
    for trial in trained.row.finished:
        opened = open_trained(trained.row, trial, setting.root)
        rows = choose_items(opened, "test", LIMIT)
        spaces = head_spaces(opened, rows)
        columns = {label: trained.place(label)[1] for label in trained.cell.tasks}
        for head in columns:
            for label, column in columns.items():
                codes = opened.dataset.table.labels[column][rows]
                accuracy = neighbour_accuracy(spaces[columns[head]], codes)
                found.setdefault((head, label), []).append(accuracy)
    return found


def own_is_above(trained: Trained, label: str, found: Accuracies) -> Tested:
    """Returns the test of a higher accuracy for a label in its own space than in other spaces."""
    cell, name = trained.cell, trained.name_label(label)
    title = DATA_SETS[cell.data].title
    claim = f"{title}: {name} groups more in its own head's space than in the others"
    own = found.get((label, label), [])
    others = [found[head, label] for head in cell.tasks if head != label and own]
    leads = [a - fmean(rest) for a, *rest in zip(own, *others, strict=True)]
    return seeds_tested(claim, leads)


def draw(setting: Setting, trained: Trained) -> bytes:
    """Draws a panel per head, coloured by the label of its task, and returns a PNG."""
    opened = open_trained(trained.row, trained.row.finished[0], setting.root)
    rows, table = choose_items(opened, "test", LIMIT), opened.dataset.table
    spaces = head_spaces(opened, rows)
    panels = []
    for label in trained.cell.tasks:
        column, title = trained.place(label)[1], trained.name_label(label)
        names = (*table.classes[column], *table.unseen.get(column, ()))
        place_N2 = tsne(spaces[column])
        panels.append(PlanePanel(f"head of {title}", place_N2, table.labels[column][rows], names))
    return plane_figure(panels, "t-SNE")


EXPERIMENT = Experiment(*described(__file__, __doc__), cells, finish, tests=unmeasured)

if __name__ == "__main__":
    main(EXPERIMENT)
