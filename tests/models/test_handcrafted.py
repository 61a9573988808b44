"""Handcrafted features: orientations, colours, invariances, precision."""

import pytest
import torch
from torch import Tensor

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.handcrafted import Handcrafted
from mtcon_ray.spec import parse_spec


def encoder(**fields: int) -> Handcrafted:
    return Handcrafted(Handcrafted.Spec.model_validate(fields))


def stripes(*, along: int) -> Tensor:
    """Returns an image [1, 3, 24, 24] of bright and dark stripes; `along` is 1 for x, 0 for y."""
    wave_S = torch.sin(torch.arange(24) * 0.8)
    image_SS = wave_S[None].expand(24, 24)
    return (image_SS if along == 1 else image_SS.T).expand(1, 3, 24, 24)


def test_orientations_are_those_of_the_gradients() -> None:
    """Vertical stripes have gradients along x, bin 0; horizontal stripes differ by 90 degrees."""
    made = encoder(orientations=4, cells=2)
    for along, bin_ in ((1, 0), (0, 2)):
        blocks = made.gradients(stripes(along=along)).view(4, 4)  # orientation, cell of the block
        assert blocks.sum(dim=1).argmax() == bin_
        assert blocks[bin_].sum() > 0.95 * blocks.sum()
        torch.testing.assert_close(blocks.norm(), torch.tensor(1.0))


def test_gradients_do_not_depend_on_contrast_and_an_even_image_has_none() -> None:
    made, image = encoder(), stripes(along=1)
    torch.testing.assert_close(made.gradients(image), made.gradients(image * 0.5 + 1))
    assert made.gradients(torch.ones(1, 3, 24, 24)).abs().max() == 0


def test_colours_are_counted_wherever_they_are() -> None:
    """Features are square roots, so their squares sum to 1; the order of pixels does not matter."""
    made = encoder(colours=3)
    image = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    found = made.colours(image).flatten(1)
    torch.testing.assert_close(found.square().sum(dim=1), torch.ones(2))
    torch.testing.assert_close(made.colours(image.flip(2, 3)).flatten(1), found)
    dark_red = torch.tensor([-0.7, -9.0, -9.0])[None, :, None, None].expand(1, 3, 8, 8)
    (filled,) = made.colours(dark_red).flatten(1).square() > 0.3
    assert filled.nonzero().flatten().tolist() == [0, 9]  # bins 0 and 1 of red, 0 of the others


def test_features_are_the_same_in_every_precision() -> None:
    made, image = encoder(), stripes(along=1)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = made(image)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, made(image))
    torch.testing.assert_close(made(image.double()).float(), rounded, rtol=1e-4, atol=1e-4)


def test_views_smaller_than_its_cells_are_refused() -> None:
    raw = {"name": "x", "views": {"size": 16}, "model": {"encoder": {"name": "handcrafted"}}}
    parse_spec(raw)
    raw["model"] = {"encoder": {"name": "handcrafted", "cells": 20}}
    with pytest.raises(SpecError, match=r"views.size must be at least .* 20, got 16"):
        parse_spec(raw)
