"""Random numbers of training as pure functions of the seed and the epoch or step.

No generator state is carried from step to step. A resumed run therefore only needs its position.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mtcon_ray.spec.problem import MISSING

# First word of each stream's spawn key: every purpose needs its own stream.
_ORDER, _STEP, _BALANCE = 0, 1, 2


def epoch_order(rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """Returns the rows in random order, from a separate stream for each seed and epoch."""
    stream = np.random.SeedSequence(seed, spawn_key=(_ORDER, epoch))
    return np.random.default_rng(stream).permutation(rows)


def balanced_order(
    labels_TE: Sequence[np.ndarray], batch_size: int, num_steps: int, seed: int, epoch: int
) -> np.ndarray:
    """Returns the examples of an epoch's steps, batch by batch, int64 [S * B].

    Tasks take turns over the steps of the training. In a step, the numbers of examples of any two
    classes of its task differ by at most 1, in the batch and in each contiguous part of it, such as
    a worker's share. In an epoch all examples of a class are drawn before any of them is repeated.
    Examples with the label MISSING are not drawn in the task's steps. Each combination of seed,
    epoch and task has its own random stream.
    """
    drawn_SB = np.empty((num_steps, batch_size), dtype=np.int64)
    turn_S = np.arange(epoch * num_steps, (epoch + 1) * num_steps) % len(labels_TE)
    for task, label_E in enumerate(labels_TE):
        stream = np.random.SeedSequence(seed, spawn_key=(_BALANCE, epoch, task))
        own = turn_S == task
        drawn_SB[own] = _balanced(label_E, (own.sum(), batch_size), np.random.default_rng(stream))
    return drawn_SB.ravel()


def _balanced(
    label_E: np.ndarray, shape: tuple[int, int], generator: np.random.Generator
) -> np.ndarray:
    """Returns examples, int64 [S, B]. In a row, class counts differ by at most 1."""
    # N examples with a label, C classes, D drawn examples in all.
    known = np.flatnonzero(label_E != MISSING)
    _, class_N, size_C = np.unique(label_E[known], return_inverse=True, return_counts=True)
    class_SB, count_C = np.empty(shape, dtype=np.int64), np.zeros(len(size_C), dtype=np.int64)
    for class_B in class_SB:
        # The least drawn classes come first, ties in random order: they get an extra example.
        order_C = np.lexsort((generator.random(len(size_C)), count_C))
        class_B[:] = np.resize(order_C, len(class_B))  # repeats the order until it is as long
        count_C += np.bincount(class_B, minlength=len(size_C))
    examples = []
    by_class = np.split(known[class_N.argsort(kind="stable")], size_C.cumsum()[:-1])
    for own, count in zip(by_class, count_C, strict=True):
        passes = [generator.permutation(own) for _ in range(-(-count // len(own)))]
        examples.append(np.concatenate([own[:0], *passes])[:count])
    # The places of the first class in the batches, then the places of the second, and so on.
    place_D = class_SB.ravel().argsort(kind="stable")
    drawn_D = np.empty(len(place_D), dtype=np.int64)
    drawn_D[place_D] = np.concatenate(examples)
    return drawn_D.reshape(shape)


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


def items(rows: np.ndarray, num_views: int) -> Examples:
    """Returns an example per row, with `num_views` views each."""
    return Examples(rows[:, None], num_views)
