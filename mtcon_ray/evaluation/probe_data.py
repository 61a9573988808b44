"""Selection of the items for probes."""

from collections.abc import Mapping

import numpy as np

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import Split
from mtcon_ray.spec.evaluate import EvaluateSpec


def short_probe_rows(
    table: LabelTable, tasks: tuple[str, ...], spec: EvaluateSpec, seed: int
) -> dict[Split, np.ndarray]:
    """Returns the rows of train and val for the short probe, ascending, a function of `seed`.

    At most spec.short_probe.max_items each. Raises DataError if a task is known for none of them.
    """
    rows: dict[Split, np.ndarray] = {}
    for split in SPLITS[:2]:
        known = _rows_with_any(table, split, tasks)
        generator = np.random.default_rng((seed, SPLITS.index(split)))
        # Ascending again, to read the memory map in order.
        rows[split] = np.sort(generator.permutation(known)[: spec.short_probe.max_items])
    _check_known(table, tasks, rows, "raise evaluate.short_probe.max_items or ")
    return rows


def fewest_labels(
    table: LabelTable,
    tasks: tuple[str, ...],
    counted: tuple[str, ...],
    spec: EvaluateSpec,
    seed: int,
) -> tuple[str, int]:
    """Returns the counted task with the fewest scored items in the short probe, and their number.

    Without tasks it returns "" and the number of items. Raises as `short_probe_rows`.
    """
    rows = short_probe_rows(table, tasks, spec, seed)["val"]
    counts = {task: int(table.known(task)[rows].sum()) for task in counted}
    worst = min(counts, key=counts.__getitem__, default="")
    return worst, counts.get(worst, len(rows))


def full_probe_rows(table: LabelTable, labels: tuple[str, ...]) -> dict[Split, np.ndarray]:
    """Returns the rows of each split with at least one known label, ascending.

    Raises DataError if a label is known for none of a split's rows.
    """
    rows = {split: _rows_with_any(table, split, labels) for split in SPLITS}
    _check_known(table, labels, rows)
    return rows


def _rows_with_any(table: LabelTable, split: Split, labels: tuple[str, ...]) -> np.ndarray:
    """Returns the rows of the split with at least one known label, ascending.

    Without labels it returns all rows of the split.
    """
    rows = table.rows(split)
    if not labels:
        return rows
    # Items without any label would only cost time: their features are not used.
    return rows[np.any([table.known(label)[rows] for label in labels], axis=0)]


def _check_known(
    table: LabelTable,
    labels: tuple[str, ...],
    rows_of: Mapping[Split, np.ndarray],
    way_out: str = "",
) -> None:
    for split, rows in rows_of.items():
        for label in labels:
            if not table.known(label)[rows].any():
                raise DataError(
                    f"label {label!r} is unknown for all {len(rows)} items of split {split!r} that "
                    f"its probe reads; {way_out}label more items, split them otherwise, or leave "
                    "the column out"
                )
