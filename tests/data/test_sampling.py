"""Tests that orders and generators depend on all of their arguments, and on nothing else."""

import numpy as np
import torch

from mtcon_ray.data.sampling import epoch_order, step_generator

ROWS = np.array([3, 5, 8, 13, 21, 34, 55, 89])


def test_an_epoch_holds_each_row_once_in_an_order_of_its_seed_and_number() -> None:
    """All pairs give different orders, also (0, 1) and (1, 0)."""
    orders = {tuple(epoch_order(ROWS, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    assert {tuple(sorted(order)) for order in orders} == {tuple(ROWS)}


def test_seed_and_step_each_change_the_stream_and_nothing_else_does() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    pairs = [(seed, step) for seed in range(4) for step in range(4)] + [(2, 3)]
    draws = [torch.rand(1, generator=step_generator(*pair)).item() for pair in pairs]
    assert len(set(draws)) == 16
    assert draws[11] == draws[16]
    assert torch.equal(torch.get_rng_state(), before)
