"""Tests that views have the same moments as those of torchvision's transforms on PIL images."""

import re
from collections.abc import Callable
from functools import cache

import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor
from torchvision import transforms

from mtcon_ray.data.views import draw_parameters, make_views
from mtcon_ray.spec.views import ViewsSpec
from tests.data.test_views import SIZE, SOURCE, photographs
from tests.pages import DOCS

pytestmark = pytest.mark.slow

PLAIN = {"size": SIZE, "mean": (0, 0, 0), "std": (1, 1, 1)}
DRAWS = 3000


def moments(views_RCHW: Tensor) -> Tensor:
    """Returns K statistics of each view, float64 [R, K].

    These are the means of 4 x 4 blocks, mean squares, contrasts and colourfulness.
    """
    edges_RCHW = (views_RCHW[..., 1:] - views_RCHW[..., :-1]).abs()
    each = (
        torch.nn.functional.avg_pool2d(views_RCHW, 4).flatten(1),
        views_RCHW.square().mean(dim=(2, 3)),
        edges_RCHW.mean(dim=(2, 3)),
        views_RCHW.std(dim=1).mean(dim=(1, 2))[:, None],
    )
    return torch.cat(each, dim=1).double()


@cache
def by_torchvision(transform: Callable[[Image.Image], Tensor]) -> Tensor:
    """Returns statistics of a transform's views of one image, each with its own draw."""
    image = Image.fromarray(photographs(1)[0].numpy())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        return moments(torch.stack([transform(image) for _ in range(DRAWS)]))


def differ(ours_RK: Tensor, theirs_RK: Tensor) -> bool:
    """Returns True if a first or second moment differs by more than 5 standard errors and 1 %.

    torchvision rounds to 8 bits.
    """
    a_RK, b_RK = (torch.cat([each, each.square()], dim=1) for each in (ours_RK, theirs_RK))
    error_K = ((a_RK.var(dim=0) + b_RK.var(dim=0)) / DRAWS).sqrt()
    difference_K = (a_RK.mean(dim=0) - b_RK.mean(dim=0)).abs()
    return bool((difference_K > 5 * error_K + b_RK.mean(dim=0) / 100).any())


def published(strengths: tuple[float, ...], blur: float, solarise: float) -> transforms.Compose:
    """Returns a paper's transform as its code composes it; the blur's kernel fits SIZE."""
    return transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE, scale=(0.08, 1.0)),
            transforms.RandomHorizontalFlip(p=0.5),
            transforms.RandomApply([transforms.ColorJitter(*strengths)], p=0.8),
            transforms.RandomGrayscale(p=0.2),
            transforms.RandomApply([transforms.GaussianBlur(3, sigma=(0.1, 2.0))], p=blur),
            transforms.RandomSolarize(128, p=solarise),
            transforms.ToTensor(),
        ]
    )


STRONG, WEAK = (0.8, 0.8, 0.8, 0.2), (0.4, 0.4, 0.2, 0.1)
ASYMMETRIC = (published(WEAK, 1.0, 0.0), published(WEAK, 0.1, 0.2))
SYMMETRIC = (published(STRONG, 0.5, 0.0),) * 2
PAPERS = {"SimCLR": SYMMETRIC, "BYOL": ASYMMETRIC, "Barlow Twins": ASYMMETRIC}


@pytest.mark.parametrize("paper", PAPERS)
def test_the_recipes_shown_are_those_of_the_papers(paper: str) -> None:
    """Each view of the recipe in docs/methods.md has the moments of the paper's transform."""
    text = (DOCS / "methods.md").read_text("utf-8").partition("## Published augmentations")[2]
    (found,) = re.findall(rf"^{paper} \(.*?```yaml\n(.*?)```", text, re.M | re.S)
    spec = ViewsSpec.model_validate({**yaml.safe_load(found)["views"], **PLAIN})
    parameters = draw_parameters(2 * DRAWS, SOURCE, spec, torch.Generator().manual_seed(12))
    ours_RK = moments(make_views(photographs(1), parameters, spec))
    for view, transform in enumerate(PAPERS[paper]):
        assert not differ(ours_RK[view::2], by_torchvision(transform)), view
