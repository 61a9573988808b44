"""Every random choice of training, as a pure function of the seed and the position in the run.

Nothing is carried from step to step, so a resumed run needs its position and nothing else.
"""

from dataclasses import dataclass

import numpy as np
import torch

# First word of each stream's key: no two purposes share a stream, whatever the seed.
_ORDER, _STEP = 0, 1


def epoch_order(rows: np.ndarray, seed: int, epoch: int) -> np.ndarray:
    """The rows in this epoch's random order; independent for each seed and epoch."""
    stream = np.random.SeedSequence(seed, spawn_key=(_ORDER, epoch))
    return np.random.default_rng(stream).permutation(rows)


def step_generator(seed: int, step: int) -> torch.Generator:
    """A generator on the CPU for one step's views; independent for each seed and step."""
    stream = np.random.SeedSequence(seed, spawn_key=(_STEP, step))
    return torch.Generator().manual_seed(int(stream.generate_state(1, np.uint64)[0]))


@dataclass(frozen=True)
class Examples:
    """What an epoch is made of: E examples of P pictures each, int64 [E, P] rows of a data set.

    An example's pictures become `views` rows each. condition_E is the task by which a triplet was
    drawn, as an index of the tasks that have classes.
    """

    rows_EP: np.ndarray
    views: int
    condition_E: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.rows_EP)


def items(rows: np.ndarray, num_views: int) -> Examples:
    """One example per item, seen in `num_views` views."""
    return Examples(rows[:, None], num_views)
