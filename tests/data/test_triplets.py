"""Tests of triplets: valid members, uniform sampling, reproducibility, and errors."""

import numpy as np
import pytest

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.triplets import draw_triplets, triplets
from mtcon_ray.errors import DataError

TASKS = ("shape", "colour")


def table(**labels: list[int]) -> LabelTable:
    """Returns a table with all items but the last in the training split."""
    (size,) = {len(values) for values in labels.values()}
    split = np.zeros(size, dtype=np.int8)
    split[-1] = 1
    return LabelTable(
        names=tuple(map(str, range(size))),
        labels={task: np.array(values) for task, values in labels.items()},
        classes={task: tuple(map(str, range(max(v) + 1))) for task, v in labels.items()},
        split=split,
    )


MIXED = table(
    shape=[0, 2, 0, -1, 1, 0, 2, 2, 2, 2, 2, 0], colour=[0, 1, 1, 0, -1, -1, 0, 1, 0, 1, 0, 0]
)


def dataset() -> Dataset:
    images = np.zeros((len(MIXED), 8, 8, 3), dtype=np.uint8)
    return Dataset(images, MIXED, TASKS, (), "0" * 64)


def test_every_triplet_keeps_to_its_condition() -> None:
    """All members are valid under the triplet's task.

    The only item of shape 1 is a negative but never an anchor, since it has no positive. The last
    item is in another split and never used.
    """
    drawn = draw_triplets(MIXED, TASKS, number=2000, seed=0)
    train = set(MIXED.rows("train").tolist())
    for condition, anchor, far, close in drawn.tolist():
        label = MIXED.labels[TASKS[condition]]
        assert {anchor, far, close} <= train
        assert label[anchor] == label[close] != -1
        assert anchor != close
        assert label[far] not in (-1, label[anchor])
    lone = [drawn[drawn[:, 0] == 0][:, column] == 4 for column in (1, 2)]
    assert not lone[0].any()
    assert lone[1].any()


def test_each_choice_is_uniform() -> None:
    """Tasks, anchors (of classes with two items or more), negatives and positives are uniform."""
    drawn = draw_triplets(MIXED, TASKS, number=40_000, seed=1)
    assert np.bincount(drawn[:, 0]) / 40_000 == pytest.approx([0.5, 0.5], abs=0.01)
    shape = drawn[drawn[:, 0] == 0]
    anchors, counts = np.unique(shape[:, 1], return_counts=True)
    assert anchors.tolist() == [0, 1, 2, 5, 6, 7, 8, 9, 10]
    assert counts / len(shape) == pytest.approx([1 / 9] * 9, abs=0.01)
    of_zero, of_one = shape[shape[:, 1] == 0], shape[shape[:, 1] == 1]
    for rows, column, expected in (
        (of_zero, 2, [1, 4, 6, 7, 8, 9, 10]),
        (of_zero, 3, [2, 5]),
        (of_one, 2, [0, 2, 4, 5]),
        (of_one, 3, [6, 7, 8, 9, 10]),
    ):
        items, counts = np.unique(rows[:, column], return_counts=True)
        assert items.tolist() == expected
        assert counts / len(rows) == pytest.approx([1 / len(items)] * len(items), abs=0.04)


def test_a_draw_follows_from_its_seed_alone() -> None:
    state = np.random.get_state(legacy=False)
    one, again, other = (draw_triplets(MIXED, TASKS, number=50, seed=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()
    np.testing.assert_equal(np.random.get_state(legacy=False), state)


def test_examples_hold_three_pictures_seen_once() -> None:
    examples = triplets(dataset(), TASKS, number=30, seed=0)
    drawn = draw_triplets(MIXED, TASKS, number=30, seed=0)
    assert len(examples) == 30
    assert examples.views == 1
    np.testing.assert_array_equal(examples.rows_EP, drawn[:, 1:])
    np.testing.assert_array_equal(examples.condition_E, drawn[:, 0])


def test_classes_of_one_image_each_are_refused() -> None:
    with pytest.raises(DataError, match=r"task 'heel' has no triplets: each of its 4 classes"):
        draw_triplets(table(heel=[0, 1, 2, 3, 3]), ("heel",), number=4, seed=0)
