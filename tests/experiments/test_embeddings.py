"""Embeddings in the plane, and how well an embedding tells labels or pairs apart."""

import numpy as np
import pytest

from experiments.reproduction import embeddings as tables

# Two directions with three items each.
ROWS = np.array([[1, 0], [1, 0.1], [1, -0.1], [0, 1], [0.1, 1], [-0.1, 1]], dtype=np.float32)


def test_neighbours_name_the_class() -> None:
    assert tables.neighbour_accuracy(ROWS, np.array([0, 0, 0, 1, 1, 1]), k=2) == 1.0
    # The item itself does not vote: its two neighbours are both of the other class.
    lonely = np.array([1, 0, 0, 1, 1, 1])
    assert tables.neighbour_accuracy(ROWS, lonely, k=2) == pytest.approx(5 / 6)


def test_overlap_of_neighbours_beyond_random_pairs() -> None:
    sets = np.array([[1, 0]] * 3 + [[0, 1]] * 3, dtype=np.uint8)
    # All neighbours have the same set; of the 15 pairs of items 6 have.
    assert tables.neighbour_overlap(ROWS, sets, k=2) == pytest.approx(1 - 6 / 15)
    mixed = np.array([[1, 0], [1, 1], [1, 1], [0, 1], [0, 1], [0, 1]], dtype=np.uint8)
    # Overlaps with two neighbours: 1/2 and 1/2, 1/2 and 1, 1/2 and 1, and 1 in the other group.
    random = (2 * 0.5 + 1 + 0 * 3 + 0.5 * 6 + 3) / 15
    assert tables.neighbour_overlap(ROWS, mixed, k=2) == pytest.approx((1 + 3 + 6) / 12 - random)


def test_separation_is_the_chance_of_a_more_similar_positive() -> None:
    positive, negative = np.array([3.0, 5.0]), np.array([1.0, 4.0, 3.0])
    # 3 is above 1 and equal to 3; 5 is above all three.
    assert tables.separation(positive, negative) == pytest.approx((1 + 0.5 + 3) / 6)
    assert tables.separation(negative + 10, positive) == 1.0
