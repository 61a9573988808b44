"""The effective rank of features, the objective of a spec without tasks."""

from dataclasses import replace

import pytest
import torch

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.features import rankme
from mtcon_ray.models.network import Network
from tests.evaluation.conftest import features_of, run_validate


def test_equal_singular_values_have_full_rank() -> None:
    """Eight orthogonal directions of one length, of 32 that there are."""
    directions_ND = torch.zeros(40, 32)
    directions_ND[torch.arange(40), torch.arange(40) % 8] = 3.0
    assert rankme(directions_ND) == pytest.approx(8 / 32, rel=1e-4)


def test_collapsed_features_have_rank_one_or_none() -> None:
    assert rankme(torch.ones(10, 16)) == pytest.approx(1 / 16, rel=1e-3)
    assert rankme(torch.zeros(10, 16)) == 0.0


def test_features_that_are_not_finite_end_the_trial() -> None:
    with pytest.raises(DivergedError, match="features must be finite"):
        rankme(torch.tensor([[1.0, float("nan")]]))


def test_without_tasks_validation_measures_the_rank_alone(
    network: Network, dataset: Dataset
) -> None:
    """Images of the train split are not read."""
    unlabelled = replace(dataset, tasks=(), held_out=())
    expected = rankme(features_of(network, dataset, "val").features)
    dataset.images.read.clear()  # type: ignore[attr-defined]
    assert run_validate(network, unlabelled) == {"val/rankme": expected}
    assert set(dataset.images.read) == set(dataset.table.rows("val"))  # type: ignore[attr-defined]
    few = run_validate(network, unlabelled, short_probe={"max_items": 10})
    assert few["val/rankme"] != expected
