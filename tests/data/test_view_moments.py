"""Tests that views have the same moments as those of torchvision's transforms on PIL images."""

import pytest
import torch
from PIL import Image
from torch import Tensor

from benchmarks.views import recipe
from mtcon_ray.data import views
from mtcon_ray.data.resizing import crop_by_products
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from tests.data.test_views import SIZE, SOURCE, photographs

pytestmark = pytest.mark.slow

SPEC = ViewsSpec(size=SIZE, blur=0.5, mean=(0, 0, 0), std=(1, 1, 1))
DRAWS = 3000


def moments(views_RCHW: Tensor) -> Tensor:
    """Returns K statistics of each view, float64 [R, K].

    These are the means of 4 x 4 blocks, their squares, mean squares, contrasts and colourfulness.
    """
    pixels_RCHW = torch.nn.functional.avg_pool2d(views_RCHW, 4)
    edges_RCHW = (views_RCHW[..., 1:] - views_RCHW[..., :-1]).abs()
    colours_R = views_RCHW.std(dim=1).mean(dim=(1, 2))
    each = (
        pixels_RCHW.flatten(1),
        pixels_RCHW.flatten(1).square(),
        views_RCHW.square().mean(dim=(2, 3)),
        edges_RCHW.mean(dim=(2, 3)),
        colours_R[:, None],
    )
    return torch.cat(each, dim=1).double()


@pytest.fixture(scope="module")
def theirs_RK() -> Tensor:
    """Returns statistics of torchvision's views of one image, each with its own draw."""
    image, transform = Image.fromarray(photographs(1)[0].numpy()), recipe(SPEC)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return moments(torch.stack([transform(image) for _ in range(DRAWS)]))


def differ(ours_RK: Tensor, theirs_RK: Tensor) -> Tensor:
    """Returns True for each first or second moment that differs significantly, bool [2 K].

    The tolerance is 5 standard errors, plus 1 % for torchvision's rounding to 8 bits.
    """
    apart = []
    for power in (1, 2):
        a_RK, b_RK = ours_RK**power, theirs_RK**power
        error_K = ((a_RK.var(dim=0) + b_RK.var(dim=0)) / DRAWS).sqrt()
        apart.append(
            (a_RK.mean(dim=0) - b_RK.mean(dim=0)).abs() > 5 * error_K + b_RK.mean(dim=0) / 100
        )
    return torch.cat(apart)


def drawn(spec: ViewsSpec) -> Tensor:
    """Returns statistics of this package's views of the same image."""
    parameters = draw_parameters(DRAWS, SOURCE, spec, torch.Generator().manual_seed(12))
    return moments(make_views(photographs(1), parameters, spec))


def test_views_have_the_moments_of_torchvision_s(theirs_RK: Tensor) -> None:
    assert not differ(drawn(SPEC), theirs_RK).any()


def test_so_have_views_cropped_as_on_a_gpu(
    theirs_RK: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crop(images: Tensor, box: Tensor, flip: Tensor, size: int, order: Tensor) -> Tensor:
        return crop_by_products(images, box, flip, size)[order]

    monkeypatch.setattr(views, "crop", crop)
    assert not differ(drawn(SPEC), theirs_RK).any()


@pytest.mark.parametrize(
    "change",
    [{"crop_scale": (0.4, 1.0)}, {"jitter": 0.4}, {"brightness": 0.7}, {"hue": 0.2},
     {"grayscale": 0.1}, {"blur": 0.2}],
    ids=str,
)  # fmt: skip
def test_another_distribution_shows(theirs_RK: Tensor, change: dict[str, object]) -> None:
    """Each changed parameter is detected, which shows that the moments are sensitive to it."""
    assert differ(drawn(SPEC.model_copy(update=change)), theirs_RK).any()
