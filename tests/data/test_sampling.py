"""Tests that orders and generators depend on all of their arguments, and on nothing else."""

import numpy as np
import torch

from mtcon_ray.data.sampling import epoch_order, step_generator

ROWS = np.array([3, 5, 8, 13, 21, 34, 55, 89])


def test_an_epoch_holds_each_row_once() -> None:
    assert sorted(epoch_order(ROWS, seed=0, epoch=1)) == sorted(ROWS)


def test_an_order_repeats_and_leaves_the_rows_alone() -> None:
    before = ROWS.copy()
    np.testing.assert_array_equal(epoch_order(ROWS, 1, 2), epoch_order(ROWS, 1, 2))
    np.testing.assert_array_equal(ROWS, before)


def test_seed_and_epoch_each_change_the_order() -> None:
    """All pairs give different orders, also (0, 1) and (1, 0)."""
    orders = {tuple(epoch_order(ROWS, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_every_row_comes_first_equally_often() -> None:
    first = [epoch_order(np.arange(4), seed=0, epoch=epoch)[0] for epoch in range(2000)]
    np.testing.assert_allclose(np.bincount(first) / 2000, 0.25, atol=0.04)


def test_seed_and_step_each_change_the_stream_and_nothing_else_does() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    draws = [
        torch.rand(1, generator=step_generator(seed, step)).item()
        for seed in range(4)
        for step in range(4)
    ]
    again = torch.rand(1, generator=step_generator(2, 3)).item()
    assert len(set(draws)) == 16
    assert draws[11] == again
    assert torch.equal(torch.get_rng_state(), before)


def test_streams_of_neighbouring_steps_are_uncorrelated() -> None:
    first_S = torch.cat([torch.rand(1, generator=step_generator(0, step)) for step in range(2000)])
    pair = torch.stack([first_S[1:], first_S[:-1]])
    assert abs(torch.corrcoef(pair)[0, 1].item()) < 0.07
