"""Every random choice of training, as a pure function of the seed and the position in the run.

Nothing is carried from step to step, so a resumed run needs its position and nothing else.
"""

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
