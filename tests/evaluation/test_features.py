"""Tests of feature extraction: eval mode, order of rows, unchanged network, cached views."""

from pathlib import Path

import numpy as np
import pytest
import torch

from mtcon_ray.data.views import ViewsSpec, evaluation_views
from mtcon_ray.evaluation import features
from mtcon_ray.evaluation.features import KeptViews, extract_features
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.network import Network, build_network, projections
from mtcon_ray.models.spec import ModelSpec

VIEWS = ViewsSpec(size=16)
ROWS = np.array([5, 0, 11, 3, 3, 7])
CPU = torch.device("cpu")


@pytest.fixture
def network() -> Network:
    spec = ModelSpec(encoder=Small.Spec(width=4), head_dim=4)
    network = build_network(spec, projections(("shape",), dim=8, hidden=None), seed=0)
    # Changes the batch-norm statistics from their defaults, so that eval mode makes a difference.
    network(torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(0)))
    return network


@pytest.fixture
def images(tmp_path: Path) -> np.ndarray:
    """Returns images as a read-only memory map, as the image store does."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 20, 3), np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    mapped: np.ndarray = np.load(tmp_path / "images.npy", mmap_mode="r")
    return mapped


@pytest.mark.parametrize("batch_size", [1, 4, 100])
def test_rows_in_the_order_asked_for_whatever_the_batch(
    network: Network, images: np.ndarray, batch_size: int
) -> None:
    features_ND = extract_features(network, images, ROWS, VIEWS, batch_size=batch_size, device=CPU)
    network.eval()
    with torch.no_grad():
        expected = network.features(evaluation_views(torch.from_numpy(images[ROWS]), VIEWS))
    torch.testing.assert_close(features_ND, expected, rtol=1e-5, atol=1e-5)
    assert not features_ND.is_inference()


def test_modes_and_statistics_are_as_before(network: Network, images: np.ndarray) -> None:
    network.train()
    frozen = network.encoder.get_submodule("stem")
    frozen.eval()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    modes = {name: module.training for name, module in network.named_modules()}
    extract_features(network, images, ROWS, VIEWS, batch_size=4, device=CPU)
    assert {name: module.training for name, module in network.named_modules()} == modes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_modes_are_restored_after_a_failure(network: Network, images: np.ndarray) -> None:
    network.train()
    with pytest.raises(IndexError):
        extract_features(network, images, np.array([99]), VIEWS, batch_size=4, device=CPU)
    assert all(module.training for module in network.modules())


def test_autocast_gives_float32_of_lower_precision(network: Network, images: np.ndarray) -> None:
    exact, rough = (
        extract_features(
            network, images, ROWS, VIEWS, batch_size=4, device=CPU, autocast_dtype=dtype
        )
        for dtype in (None, torch.bfloat16)
    )
    assert rough.dtype == exact.dtype == torch.float32
    assert not torch.equal(rough, exact)
    torch.testing.assert_close(rough, exact, rtol=0.1, atol=0.1)


def test_kept_views_give_the_same_features_and_are_made_once(
    network: Network, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most `most_bytes` of views are cached; a network that modifies its input does no harm."""
    made: list[int] = []

    def counting(batch: torch.Tensor, spec: ViewsSpec) -> torch.Tensor:
        made.append(len(batch))
        return evaluation_views(batch, spec)

    monkeypatch.setattr(features, "evaluation_views", counting)
    encode = network.encoder.forward
    monkeypatch.setattr(network.encoder, "forward", lambda x: encode(x.mul_(0.5)))
    one_view = 4 * 3 * VIEWS.size**2

    def read(kept: KeptViews | None) -> torch.Tensor:
        return extract_features(network, images, ROWS, VIEWS, batch_size=1, device=CPU, kept=kept)

    expected = read(None)
    num_rows = len(made)
    assert num_rows == len(ROWS)
    kept = KeptViews(3 * one_view)
    for _ in range(3):
        assert torch.equal(read(kept), expected)
    assert kept.num_bytes == 3 * one_view
    assert len(made) == num_rows + num_rows + 2 * (num_rows - 3)
