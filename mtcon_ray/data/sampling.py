"""Random numbers and triplets of training as pure functions of the seed and the epoch or step.

No generator state is carried from step to step. A resumed run therefore only needs its position.
"""

from dataclasses import dataclass

import numpy as np
import torch

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.errors import DataError
from mtcon_ray.spec.problem import MISSING

# First word of each stream's spawn key: every purpose needs its own stream.
_ORDER, _STEP = 0, 1


def epoch_order(rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Returns the rows in random order, from a separate stream for each seed and epoch."""
    stream = np.random.SeedSequence(seed, spawn_key=(_ORDER, epoch))
    return np.random.default_rng(stream).permutation(rows)


def step_generator(seed: int, step: int) -> torch.Generator:
    """Returns a CPU generator for a step's views, independent for each seed and step."""
    stream = np.random.SeedSequence(seed, spawn_key=(_STEP, step))
    return torch.Generator().manual_seed(int(stream.generate_state(1, np.uint64)[0]))


@dataclass(frozen=True)
class Examples:
    """The E examples of an epoch, of P images each (1, or 3 for a triplet).

    rows_EP is int64 [E, P], rows of the data set. Each image is augmented to `views` views.
    condition_E is int64 [E] for triplets: the task of each triplet, as an index into the tasks with
    classes.
    """

    rows_EP: np.ndarray
    views: int
    condition_E: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows_EP)


def triplets(table: LabelTable, tasks: tuple[str, ...], *, number: int, seed: int) -> Examples:
    """Returns `number` triplets of training rows in the order anchor, negative, positive.

    condition_E is an index into `tasks` (columns of classes). Each image has a single view. All
    processes and both methods draw the same triplets. Only training items with a known label are
    sampled: the task uniformly, the anchor uniformly among items of classes with at least two
    items, the positive uniformly among the other items of the anchor's class, the negative
    uniformly among the items of other classes.

    Each task must have two classes, which `read_table` checks. Raises DataError if a task has no
    class with two items.
    """
    generator = np.random.default_rng(seed)
    condition_E = generator.integers(len(tasks), size=number)
    # Drawn before the loop: a task's labels must not change the triplets of another task.
    share_E3 = generator.random((number, 3))
    rows_E3 = np.empty((number, 3), dtype=np.int64)
    for condition, task in enumerate(tasks):
        chosen = condition_E == condition
        rows_E3[chosen] = _under(table, task, share_E3[chosen])
    return Examples(rows_E3, views=1, condition_E=condition_E)


def _under(table: LabelTable, task: str, share_E3: np.ndarray) -> np.ndarray:
    """Returns anchor, negative and positive rows under one task, int64 [E, 3].

    Each uniform number in `share_E3` selects from the sorted list of candidate items.
    """
    rows = table.rows("train")
    rows = rows[table.labels[task][rows] != MISSING]
    rows = rows[np.argsort(table.labels[task][rows], kind="stable")]
    # Sorted by class: the items of a class are the `size` consecutive places from `first` on.
    _, first_G, class_N, size_G = np.unique(
        table.labels[task][rows], return_index=True, return_inverse=True, return_counts=True
    )
    if size_G.max() < 2:
        raise DataError(
            f"task {task!r} has no triplets: each of its {len(size_G)} classes has a single image "
            "in the train split; take it out of data.tasks"
        )
    first_N, size_N = first_G[class_N], size_G[class_N]
    candidates = np.flatnonzero(size_N > 1)
    anchor_E = candidates[_pick(share_E3[:, 0], len(candidates))]
    first_E, size_E = first_N[anchor_E], size_N[anchor_E]
    far_E = _pick(share_E3[:, 1], len(rows) - size_E)
    # Skip the places of the anchor's own class.
    far_E = far_E + np.where(far_E >= first_E, size_E, 0)
    # A cyclic offset of 1 to size - 1 within the class, because an offset of 0 is the anchor.
    ahead_E = 1 + _pick(share_E3[:, 2], size_E - 1)
    close_E = first_E + (anchor_E - first_E + ahead_E) % size_E
    return np.asarray(rows[np.stack([anchor_E, far_E, close_E], axis=1)])


def _pick(share: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Returns floor(share * count), int64: a uniform index if share is uniform in [0, 1)."""
    return np.asarray((share * count).astype(np.int64))
