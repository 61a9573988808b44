"""Random numbers of training as pure functions of the seed and the epoch or step.

No generator state is carried from step to step. A resumed run therefore only needs its position.
"""

from dataclasses import dataclass

import numpy as np
import torch

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
