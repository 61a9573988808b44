"""Tests of triplets, of the order of items, and of generators: valid, uniform, reproducible."""

import numpy as np
import pytest
import torch

from mtcon_ray.data.sampling import epoch_order, step_generator, triplets
from mtcon_ray.errors import DataError
from tests.data.labels import coded

TASKS = ("shape", "colour")


# All items but the last are in the training split.
MIXED = coded(
    [*[0] * 11, 1],
    shape=[0, 2, 0, -1, 1, 0, 2, 2, 2, 2, 2, 0],
    colour=[0, 1, 1, 0, -1, -1, 0, 1, 0, 1, 0, 0],
)


def drawn(number: int, seed: int) -> np.ndarray:
    """Returns the task, anchor, negative and positive of triplets, int64 [number, 4]."""
    found = triplets(MIXED, TASKS, number=number, seed=seed)
    assert (len(found), found.views) == (number, 1)
    assert found.condition_E is not None
    return np.column_stack([found.condition_E, found.rows_EP])


def test_every_triplet_keeps_to_its_condition() -> None:
    """All members are valid under the triplet's task.

    The only item of shape 1 is a negative but never an anchor, since it has no positive. The last
    item is in another split and never used.
    """
    found = drawn(2000, seed=0)
    train = set(MIXED.rows("train").tolist())
    for condition, anchor, far, close in found.tolist():
        label = MIXED.labels[TASKS[condition]]
        assert {anchor, far, close} <= train
        assert label[anchor] == label[close] != -1
        assert anchor != close
        assert label[far] not in (-1, label[anchor])
    assert (found[found[:, 0] == 0] == 4).any(axis=0)[1:3].tolist() == [False, True]


def test_each_choice_is_uniform() -> None:
    """Tasks, anchors (of classes with two items or more), negatives and positives are uniform."""
    found = drawn(40_000, seed=1)
    assert np.bincount(found[:, 0]) / 40_000 == pytest.approx([0.5, 0.5], abs=0.01)
    shape = found[found[:, 0] == 0]
    anchors, counts = np.unique(shape[:, 1], return_counts=True)
    assert anchors.tolist() == [0, 1, 2, 5, 6, 7, 8, 9, 10]
    assert counts / len(shape) == pytest.approx([1 / 9] * 9, abs=0.01)
    of_zero, of_one = shape[shape[:, 1] == 0], shape[shape[:, 1] == 1]
    for rows, column, expected in (
        (of_zero, 2, [1, 4, 6, 7, 8, 9, 10]), (of_zero, 3, [2, 5]),
        (of_one, 2, [0, 2, 4, 5]), (of_one, 3, [6, 7, 8, 9, 10]),
    ):  # fmt: skip
        items, counts = np.unique(rows[:, column], return_counts=True)
        assert items.tolist() == expected
        assert counts / len(rows) == pytest.approx([1 / len(items)] * len(items), abs=0.04)


def test_a_draw_follows_from_its_seed_alone() -> None:
    state = np.random.get_state(legacy=False)
    one, again, other = (drawn(50, seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    np.testing.assert_equal(np.random.get_state(legacy=False), state)


def test_classes_of_one_image_each_are_refused() -> None:
    with pytest.raises(DataError, match=r"task 'heel' has no triplets: each of its 4 classes"):
        triplets(coded([0, 0, 0, 0, 1], heel=[0, 1, 2, 3, 3]), ("heel",), number=4, seed=0)


def test_an_epoch_holds_each_row_once_in_an_order_of_its_seed_and_number() -> None:
    """All pairs give different orders, also (0, 1) and (1, 0)."""
    rows = np.array([3, 5, 8, 13, 21, 34, 55, 89])
    orders = {tuple(epoch_order(rows, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16
    assert {tuple(sorted(order)) for order in orders} == {tuple(rows)}


def test_seed_and_step_each_change_the_stream_and_nothing_else_does() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    pairs = [(seed, step) for seed in range(4) for step in range(4)] + [(2, 3)]
    draws = [torch.rand(1, generator=step_generator(*pair)).item() for pair in pairs]
    assert len(set(draws)) == 16
    assert draws[11] == draws[16]
    assert torch.equal(torch.get_rng_state(), before)
