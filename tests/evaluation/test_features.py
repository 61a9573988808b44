"""Tests of features: eval mode, order of rows, unchanged network, effective rank."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.views import draw_parameters, evaluation_views, make_views
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.features import extract_features, rankme
from mtcon_ray.models.network import Network
from mtcon_ray.spec.views import SecondViewSpec, ViewsSpec
from tests.evaluation.conftest import CPU, TASKS, VIEWS, features_of, run_validate

ROWS = np.array([5, 0, 11, 3, 3, 7])


@pytest.fixture
def network(network: Network) -> Network:
    # Changes the batch-norm statistics from their defaults, so that eval mode makes a difference.
    network(torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0)))
    return network


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_rows_in_order_for_any_batch(network: Network, dataset: Dataset, batch_size: int) -> None:
    given = network, dataset.images, ROWS, VIEWS
    read = partial(extract_features, *given, batch_size=batch_size, device=CPU)
    features_ND, *heads = (read(head=head) for head in (None, *TASKS))
    network.eval()
    with torch.no_grad():
        x_NCHW = evaluation_views(torch.from_numpy(dataset.images[ROWS]), VIEWS)
        expected, rows = network.features(x_NCHW), network(x_NCHW)
    torch.testing.assert_close(features_ND, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(heads, list(rows.values()), rtol=1e-5, atol=1e-5)
    assert not features_ND.is_inference()


def test_augmented_features_are_of_one_view_per_image(network: Network, dataset: Dataset) -> None:
    views = ViewsSpec(size=16, second=SecondViewSpec(flip=1.0))
    generator = torch.Generator().manual_seed(1)
    given = network, dataset.images, ROWS, views, 4, CPU, None, None, generator
    first, later = extract_features(*given), extract_features(*given)
    one = views.model_copy(update={"num_views": 1})
    drawn = draw_parameters(6, dataset.images.shape[1], one, torch.Generator().manual_seed(1))
    x_NCHW = make_views(torch.from_numpy(dataset.images[ROWS]), drawn, one)
    with torch.no_grad():
        expected = network.eval().features(x_NCHW)
    torch.testing.assert_close(first, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(later, first)


def test_modes_and_statistics_are_as_before(network: Network, dataset: Dataset) -> None:
    network.train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    modes = {name: module.training for name, module in network.named_modules()}
    extract_features(network, dataset.images, ROWS, VIEWS, batch_size=4, device=CPU)
    assert {name: module.training for name, module in network.named_modules()} == modes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_autocast_gives_float32_of_lower_precision(network: Network, dataset: Dataset) -> None:
    given = network, dataset.images, ROWS, VIEWS
    read = partial(extract_features, *given, batch_size=4, device=CPU)
    exact, rough = (read(autocast_dtype=dtype) for dtype in (None, torch.bfloat16))
    assert rough.dtype == exact.dtype == torch.float32
    assert not torch.equal(rough, exact)
    torch.testing.assert_close(rough, exact, rtol=0.1, atol=0.1)


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


def test_without_tasks_validation_measures_rank_alone(network: Network, dataset: Dataset) -> None:
    """Images of the train split are not read."""
    unlabelled = replace(dataset, tasks=(), held_out=())
    expected = rankme(features_of(network, dataset, "val").features)
    dataset.images.read.clear()  # type: ignore[attr-defined]
    assert run_validate(network, unlabelled) == {"val/rankme": expected}
    assert set(dataset.images.read) == set(dataset.table.rows("val"))  # type: ignore[attr-defined]
    few = run_validate(network, unlabelled, short_probe={"max_items": 10})
    assert few["val/rankme"] != expected
