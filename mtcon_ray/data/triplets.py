"""Triplets of images, drawn once from the training labels (METHODS 8.3).

<store>/triplets/<key>.npy   int64 [E, 4]: condition, anchor, far, close
"""

import hashlib
from pathlib import Path
from uuid import uuid4

import numpy as np

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples
from mtcon_ray.data.sources.base import MISSING, LabelTable
from mtcon_ray.errors import DataError, ResourceError

FORMAT = 1


def triplets(dataset: Dataset, tasks: tuple[str, ...], *, number: int, seed: int) -> Examples:
    """`number` triplets of training items in the order anchor, far, close, one view each.

    condition_E is an index of `tasks`, columns of classes. The draw is kept in the data set's
    store, so that all who ask for the same one read one file. Raises DataError as
    `draw_triplets` does or where that file is broken, ResourceError where it cannot be written.
    """
    if dataset.store is None:
        drawn_E4 = draw_triplets(dataset.table, tasks, number=number, seed=seed)
    else:
        key = repr((FORMAT, dataset.fingerprint, seed, number, tasks))
        name = hashlib.sha256(key.encode()).hexdigest()[:32]
        path = dataset.store / "triplets" / f"{name}.npy"
        if not path.exists():
            _write(path, draw_triplets(dataset.table, tasks, number=number, seed=seed))
        drawn_E4 = _read(path, number)
    return Examples(drawn_E4[:, 1:], views=1, condition_E=drawn_E4[:, 0])


def draw_triplets(
    table: LabelTable, tasks: tuple[str, ...], *, number: int, seed: int
) -> np.ndarray:
    """int64 [number, 4]: condition, anchor, far, close; a pure function of its arguments.

    The condition is uniform over the tasks, the anchor over the items with a class of two or
    more; close is uniform over the other items of the anchor's class, far over those of another.
    Only training items whose label is known count.

    Raises DataError where a task has fewer than two classes, or no class of two items.
    """
    generator = np.random.default_rng(seed)
    drawn_E4 = np.empty((number, 4), dtype=np.int64)
    drawn_E4[:, 0] = generator.integers(len(tasks), size=number)
    share_E3 = generator.random((number, 3))
    for condition, task in enumerate(tasks):
        chosen = drawn_E4[:, 0] == condition
        drawn_E4[chosen, 1:] = _under(table, task, share_E3[chosen])
    return drawn_E4


def _under(table: LabelTable, task: str, share_E3: np.ndarray) -> np.ndarray:
    """Anchor, far and close by one task, each the item at its share of those that may be."""
    rows = table.rows("train")
    rows = rows[table.labels[task][rows] != MISSING]
    rows = rows[np.argsort(table.labels[task][rows], kind="stable")]
    # Items of a class now lie side by side, from `first` on.
    _, first_G, class_N, size_G = np.unique(
        table.labels[task][rows], return_index=True, return_inverse=True, return_counts=True
    )
    _check(task, size_G)
    first_N, size_N = first_G[class_N], size_G[class_N]
    candidates = np.flatnonzero(size_N > 1)
    anchor_E = candidates[_pick(share_E3[:, 0], len(candidates))]
    first_E, size_E = first_N[anchor_E], size_N[anchor_E]
    far_E = _pick(share_E3[:, 1], len(rows) - size_E)
    far_E = far_E + np.where(far_E >= first_E, size_E, 0)
    ahead_E = 1 + _pick(share_E3[:, 2], size_E - 1)
    close_E = first_E + (anchor_E - first_E + ahead_E) % size_E
    drawn_E3: np.ndarray = rows[np.stack([anchor_E, far_E, close_E], axis=1)]
    return drawn_E3


def _pick(share: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Index below count at a share in [0, 1)."""
    index: np.ndarray = (share * count).astype(np.int64)
    return index


def _check(task: str, size_G: np.ndarray) -> None:
    if len(size_G) < 2:
        raise DataError(
            f"task {task!r} must have at least two classes in the train split to make triplets, "
            f"got {len(size_G)}; take it out of data.tasks"
        )
    if size_G.max() < 2:
        raise DataError(
            f"task {task!r} must have a class of two images in the train split to make triplets, "
            f"got {len(size_G)} classes of one; take it out of data.tasks"
        )


def _write(path: Path, drawn_E4: np.ndarray) -> None:
    """Atomic: readers find the whole file or none."""
    unfinished = path.with_name(f"{path.name}.{uuid4().hex}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            with open(unfinished, "wb") as file:
                np.save(file, drawn_E4, allow_pickle=False)
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise ResourceError(
            f"the image store must be writable, got {error.strerror or error} under "
            f"{path.parent}; set storage.root to another place"
        ) from error


def _read(path: Path, number: int) -> np.ndarray:
    try:
        drawn_E4: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"stored triplets {path} must be whole, got {error}; delete the file, it is made anew"
        ) from None
    if drawn_E4.shape != (number, 4) or drawn_E4.dtype != np.int64:
        raise DataError(
            f"stored triplets {path} must be int64 [{number}, 4], got {drawn_E4.dtype} "
            f"{list(drawn_E4.shape)}; delete the file, it is made anew"
        )
    return drawn_E4
