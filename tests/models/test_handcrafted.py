"""Handcrafted features: orientations, colours, invariances, precision."""

import torch
from torch import Tensor

from mtcon_ray.models.encoders.handcrafted import BRIGHTEST, DARKEST, Handcrafted


def stripes(*, along: int) -> Tensor:
    """Returns an image [1, 3, 24, 24] of bright and dark stripes; `along` is 1 for x, 0 for y."""
    image_SS = torch.sin(torch.arange(24) * 0.8)[None].expand(24, 24)
    return (image_SS if along == 1 else image_SS.T).expand(1, 3, 24, 24)


def test_orientations_are_those_of_the_gradients() -> None:
    """Vertical stripes have gradients along x, bin 0; horizontal stripes differ by 90 degrees."""
    made = Handcrafted(Handcrafted.Spec())
    for along, bins in ((1, [0]), (0, [4, 5])):  # 90 degrees lie between the bins 4 and 5
        blocks = made.gradients(stripes(along=along)).view(9, 4, 25)  # orientation, cell, block
        assert blocks[bins].sum() > 0.95 * blocks.sum()
        torch.testing.assert_close(blocks.flatten(0, 1).norm(dim=0), torch.ones(25))


def test_colours_are_counted_wherever_they_are() -> None:
    """Features are square roots, so their squares sum to 1; the order of pixels does not matter."""
    made = Handcrafted(Handcrafted.Spec())
    image = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    found = made.colours(image).flatten(1)
    torch.testing.assert_close(found.square().sum(dim=1), torch.ones(2))
    torch.testing.assert_close(made.colours(image.flip(2, 3)).flatten(1), found)
    middle = 0.5 * (DARKEST + BRIGHTEST)
    red = torch.tensor([middle, -9.0, -9.0])[None, :, None, None].expand(1, 3, 8, 8)
    (filled,) = made.colours(red).flatten(1).square() > 0.3
    assert filled.nonzero().flatten().tolist() == [16, 32]  # bins 1 and 2 of red, 0 of the others


def test_features_are_the_same_in_every_precision() -> None:
    made, image = Handcrafted(Handcrafted.Spec()), stripes(along=1)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = made(image)
    assert rounded.dtype == torch.float32
    torch.testing.assert_close(rounded, made(image))
    torch.testing.assert_close(made(image.double()).float(), rounded, rtol=1e-4, atol=1e-4)
