"""Tests that orders and generators depend on all of their arguments, and on nothing else."""

from itertools import chain

import numpy as np
import pytest
import torch

from mtcon_ray.data.sampling import balanced_order, epoch_order, step_generator
from mtcon_ray.spec.problem import MISSING

ROWS = np.array([3, 5, 8, 13, 21, 34, 55, 89])


def test_an_epoch_holds_each_row_once() -> None:
    assert sorted(epoch_order(ROWS, seed=0, epoch=1)) == sorted(ROWS)


def test_seed_and_epoch_each_change_the_order() -> None:
    """All pairs give different orders, also (0, 1) and (1, 0)."""
    orders = {tuple(epoch_order(ROWS, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


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


# 100 examples of class 0, 10 of class 1, 3 of class 7, and 20 without a label.
SKEWED = np.repeat([0, 1, 7, MISSING], [100, 10, 3, 20])
FINE = np.arange(len(SKEWED)) % 40  # more classes than a batch of 32 has places


def balanced(label_E: np.ndarray, epoch: int = 0, seed: int = 0, size: int = 32) -> np.ndarray:
    """Returns six steps of a task, int64 [6, size]."""
    return balanced_order([label_E], size, 6, seed, epoch).reshape(6, size)


def spread(labels: np.ndarray, classes: np.ndarray) -> int:
    """Returns the difference between the most and the least frequent class."""
    counts = [(labels == each).sum() for each in classes]
    return int(max(counts) - min(counts))


@pytest.mark.parametrize("label_E", [SKEWED, FINE], ids=["rare classes", "many classes"])
@pytest.mark.parametrize("size", [32, 31])
def test_classes_are_equally_frequent_in_batches_shares_and_epochs(
    label_E: np.ndarray, size: int
) -> None:
    classes = np.setdiff1d(label_E, [MISSING])
    drawn_SB = label_E[balanced(label_E, size=size)]
    halves = (np.array_split(batch, 2) for batch in drawn_SB)
    for part in (drawn_SB, *drawn_SB, *chain(*halves)):
        assert set(part.flat) <= set(classes)
        assert spread(part, classes) <= 1


def test_each_epoch_begins_with_other_classes() -> None:
    """Eight of the 40 classes have no place in the first batch; chance chooses them."""
    first = [frozenset(FINE[balanced(FINE, epoch)[0]]) for epoch in range(5)]
    assert {len(classes) for classes in first} == {32}
    assert len(set(first)) == 5


def test_all_images_of_a_class_come_before_any_comes_again() -> None:
    drawn = balanced(SKEWED).ravel()
    for label, size in ((0, 100), (1, 10), (7, 3)):
        own = drawn[SKEWED[drawn] == label]
        assert len(own) == 64
        _, counts = np.unique(own, return_counts=True)
        assert len(counts) == min(size, 64)
        assert set(counts) <= {64 // size, 64 // size + 1}
        assert len(set(own[: min(size, 64)])) == min(size, 64)


def test_balanced_epochs_depend_on_seed_and_epoch_alone() -> None:
    np.testing.assert_array_equal(balanced(SKEWED, 3, 1), balanced(SKEWED, 3, 1))
    orders = {tuple(balanced(SKEWED, e, s).ravel()) for e in range(3) for s in range(3)}
    assert len(orders) == 9


def test_tasks_take_turns_over_the_steps_of_all_epochs() -> None:
    """With five steps per epoch the second epoch starts with the other task."""
    other = np.repeat([0, 1, 0], [5, 8, len(SKEWED) - 13])
    for epoch, turns in enumerate(([0, 1, 0, 1, 0], [1, 0, 1, 0, 1])):
        drawn_SB = balanced_order([SKEWED, other], 32, 5, 0, epoch).reshape(5, 32)
        skewed = [spread(SKEWED[batch], np.array([0, 1, 7])) <= 1 for batch in drawn_SB]
        halved = [spread(other[batch], np.array([0, 1])) <= 1 for batch in drawn_SB]
        assert skewed == [turn == 0 for turn in turns]
        assert halved == [turn == 1 for turn in turns]
