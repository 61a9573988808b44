"""Selection of the items for probes, and the scores of labels without looking at the images."""

from collections.abc import Iterable

import numpy as np

from mtcon_ray.base.metrics import KNN, SCORE, Labels
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import Split
from mtcon_ray.spec.evaluate import EvaluateSpec
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT
from mtcon_ray.spec.run_spec import RunSpec


def short_probe_rows(
    table: LabelTable, labels: Labels, spec: EvaluateSpec, seed: int
) -> dict[Split, np.ndarray]:
    """Returns the rows of train and val for the short probe, ascending, a function of `seed`.

    At most spec.short_probe.max_items each. Raises DataError if a task is known for none of them,
    or if a metric of the objective cannot be measured on them.
    """
    rows: dict[Split, np.ndarray] = {}
    for split in SPLITS[:2]:
        known = rows_with_any(table, split, labels.tasks)
        generator = np.random.default_rng((seed, SPLITS.index(split)))
        # Ascending again, to read the memory map in order.
        chosen = np.sort(generator.permutation(known)[: spec.short_probe.max_items])
        for task in labels.tasks:
            if not table.known(task)[chosen].any():
                raise DataError(
                    f"label {task!r} is unknown for all {len(chosen)} items of split {split!r} "
                    "that its probe reads; raise evaluate.short_probe.max_items or label more "
                    "items, split them otherwise, or leave the column out"
                )
        rows[split] = chosen
    for metric, task in labels.shares:
        # A plugin's source may return another kind of labels than its section says.
        codes = table.labels.get(task, np.full(len(table), MISSING))[rows["val"]]
        most = np.bincount(codes[codes != MISSING]).max(initial=0)
        if metric != SCORE and most < (1 if metric == KNN else 2):
            raise DataError(
                f"search.objective {metric}/{task} needs a column of classes, and for retrieval "
                f"two items of a class among the {len(rows['val'])} validation items of a probe; "
                "raise evaluate.short_probe.max_items, or choose another objective"
            )
    return rows


def fewest_labels(table: LabelTable, spec: RunSpec) -> tuple[str, int]:
    """Returns the task with the fewest items in the objective's short probe, and their number.

    The number is of the first seed. Without tasks it returns "" and the number of items. Raises as
    `short_probe_rows`, for any seed of `search.repeats`.
    """
    labels, seeds = spec.labels, range(spec.seed, spec.seed + spec.search.repeats)
    rows, *_ = (short_probe_rows(table, labels, spec.evaluate, seed)["val"] for seed in seeds)
    counts = {task: int(table.known(task)[rows].sum()) for _, task in labels.shares}
    worst = min(counts, key=counts.__getitem__, default="")
    return worst, counts.get(worst, len(rows))


def rows_with_any(table: LabelTable, split: Split, labels: tuple[str, ...]) -> np.ndarray:
    """Returns the rows of the split with at least one known label, ascending.

    Without labels it returns all rows of the split.
    """
    rows = table.rows(split)
    if not labels:
        return rows
    # Items without any label would only cost time: their features are not used.
    return rows[np.any([table.known(label)[rows] for label in labels], axis=0)]


def majority_shares(table: LabelTable, labels: Iterable[str]) -> dict[str, float]:
    """Returns each label's score on the test split without the images, a fraction, by label.

    For classes it is the share of the most frequent class among the classes in train or val. For
    a label set it is the mean share of positives, the mean average precision of a random ranking.
    """
    shares: dict[str, float] = {}
    test = table.rows("test")
    for label in labels:
        rows = test[table.known(label)[test]]
        if label in table.labels:
            counts = np.bincount(table.labels[label][rows])
            shares[label] = float(counts[: table.size_of(label)].max() / len(rows))
        else:
            bits_NL = table.multi_hot[label][rows]
            num_known_L = (bits_NL != UNKNOWN_BIT).sum(axis=0)
            # A label without known values scores 0, as in `mean_average_precision`.
            shares[label] = float(((bits_NL == 1).sum(axis=0) / num_known_L.clip(min=1)).mean())
    return shares
