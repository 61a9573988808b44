"""Embeddings in the plane, and how well an embedding tells labels or pairs apart."""

import numpy as np
import pytest

from experiments.reproduction import embeddings
from experiments.reproduction.embeddings import (
    halving_attributes,
    neighbour_accuracy,
    neighbour_overlap,
    separation,
    tsne,
    umap_if_installed,
)

# Two directions with three items each.
ROWS = np.array([[1, 0], [1, 0.1], [1, -0.1], [0, 1], [0.1, 1], [-0.1, 1]], dtype=np.float32)


def clusters(num: int, dim: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Returns rows around three unit vectors, and the cluster of each."""
    code_N = np.arange(num) % 3
    noise = 0.05 * np.random.default_rng(0).standard_normal((num, dim))
    return (np.eye(dim)[code_N] + noise).astype(np.float32), code_N


def spread(place_N2: np.ndarray, code_N: np.ndarray) -> float:
    """Returns the mean distance within clusters, as a share of that between their middles."""
    middles = np.stack([place_N2[code_N == code].mean(axis=0) for code in range(3)])
    within = np.linalg.norm(place_N2 - middles[code_N], axis=1).mean()
    return float(within / np.linalg.norm(middles - np.roll(middles, 1, axis=0), axis=1).mean())


@pytest.mark.slow
def test_tsne_keeps_clusters_apart_and_is_the_same_each_time() -> None:
    z_ND, code_N = clusters(60)
    place_N2 = tsne(z_ND)
    assert place_N2.shape == (60, 2)
    assert spread(place_N2, code_N) < 0.3
    assert np.array_equal(place_N2, tsne(z_ND))


def test_tsne_of_few_items() -> None:
    assert tsne(clusters(6)[0]).shape == (6, 2)


@pytest.mark.slow
@pytest.mark.soak  # umap-learn compiles itself for a minute first
def test_umap_keeps_clusters_apart_and_is_the_same_each_time() -> None:
    pytest.importorskip("umap")
    place = umap_if_installed()
    assert place is not None
    z_ND, code_N = clusters(90)
    place_N2 = place(z_ND)
    assert place_N2.shape == (90, 2)
    assert spread(place_N2, code_N) < 0.3
    assert np.array_equal(place_N2, place(z_ND))


def test_umap_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embeddings, "find_spec", lambda name: None)
    assert umap_if_installed() is None


def test_neighbours_name_the_class() -> None:
    assert neighbour_accuracy(ROWS, np.array([0, 0, 0, 1, 1, 1]), k=2) == 1.0
    # The item itself does not vote: its two neighbours are both of the other class.
    assert neighbour_accuracy(ROWS, np.array([1, 0, 0, 1, 1, 1]), k=2) == pytest.approx(5 / 6)


def test_items_without_a_label_neither_vote_nor_count() -> None:
    codes = np.array([0, 0, -1, 1, 1, -1])
    assert neighbour_accuracy(ROWS, codes, k=1) == 1.0
    assert neighbour_accuracy(ROWS, np.array([0, -1, 0, 1, -1, -1]), k=1) == pytest.approx(2 / 3)


def test_overlap_of_neighbours_beyond_random_pairs() -> None:
    sets = np.array([[1, 0]] * 3 + [[0, 1]] * 3, dtype=np.uint8)
    # All neighbours have the same set; of the 15 pairs of items 6 have.
    assert neighbour_overlap(ROWS, sets, k=2) == pytest.approx(1 - 6 / 15)
    mixed = np.array([[1, 0], [1, 1], [1, 1], [0, 1], [0, 1], [0, 1]], dtype=np.uint8)
    # Overlaps with two neighbours: 1/2 and 1/2, 1/2 and 1, 1/2 and 1, and 1 in the other group.
    random = (2 * 0.5 + 1 + 0 * 3 + 0.5 * 6 + 3) / 15
    assert neighbour_overlap(ROWS, mixed, k=2) == pytest.approx((1 + 3 + 6) / 12 - random)


def test_equal_empty_sets_overlap() -> None:
    assert neighbour_overlap(ROWS, np.zeros((6, 2), np.uint8), k=2) == 0.0


def test_separation_is_the_chance_of_a_more_similar_positive() -> None:
    positive, negative = np.array([3.0, 5.0]), np.array([1.0, 4.0, 3.0])
    # 3 is above 1 and equal to 3; 5 is above all three.
    assert separation(positive, negative) == pytest.approx((1 + 0.5 + 3) / 6)
    assert separation(negative + 10, positive) == 1.0


def test_two_attributes_divide_items_into_four_groups() -> None:
    sets = np.array(
        [[1, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]],
        dtype=np.uint8,
    )
    # Columns 0 and 1 are equal, so two of their groups are empty.
    assert set(halving_attributes(sets)) in ({0, 2}, {1, 2})
