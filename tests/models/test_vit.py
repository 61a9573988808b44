"""The vision transformer: patches, position codes, all view sizes, subsets of patches."""

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.vit import ViT, patches, positions
from mtcon_ray.spec.run_spec import parse_spec

SMALL = ViT.Spec(patch=4, width=16, depth=2, heads=2)


def images(rows: int = 8, columns: int = 12) -> Tensor:
    """Returns two random images [2, 3, rows, columns]."""
    return torch.randn(2, 3, rows, columns, generator=torch.Generator().manual_seed(0))


def test_patches_are_cut_row_by_row() -> None:
    """The second of 2 x 3 patches is the upper middle one, the fifth the lower middle one."""
    x_NCHW = images()
    cut = patches(x_NCHW, 4)
    assert cut.shape == (2, 6, 3 * 4 * 4)
    assert torch.equal(cut[:, 1], x_NCHW[:, :, :4, 4:8].flatten(1))
    assert torch.equal(cut[:, 4], x_NCHW[:, :, 4:, 4:8].flatten(1))


def test_places_tell_row_and_column_apart() -> None:
    code_PD = positions(2, 3, torch.zeros(1, 8, dtype=torch.float64))
    assert code_PD.shape == (6, 8)
    assert code_PD.dtype == torch.float64
    assert torch.equal(code_PD[1, :4], code_PD[0, :4])  # patches 0 and 1 share a row
    assert torch.equal(code_PD[3, 4:], code_PD[0, 4:])  # patches 0 and 3 share a column
    assert len(torch.unique(code_PD, dim=0)) == 6


def test_patches_know_their_places_and_each_other() -> None:
    """Moving patches changes the features of the image; the order of tokens does not."""
    vit = ViT(SMALL).double()
    x_NCHW = images().double()
    moved = x_NCHW.roll(4, dims=3)
    assert not torch.allclose(vit(x_NCHW), vit(moved), atol=1e-3)
    token_NPD = vit.tokens(x_NCHW)
    order = torch.tensor([3, 1, 0, 5, 4, 2])
    torch.testing.assert_close(vit.encode(token_NPD[:, order]), vit.encode(token_NPD)[:, order])
    some = vit.encode(token_NPD[:, :4])
    assert not torch.allclose(some, vit.encode(token_NPD)[:, :4], atol=1e-3)


def test_heads_must_share_the_width() -> None:
    with pytest.raises(ValidationError, match="width must be divisible by heads, got 16 and 3"):
        ViT.Spec(width=16, heads=3)


@pytest.mark.parametrize(("size", "patch"), [(60, 8), (16, 16)])
def test_a_spec_s_view_size_must_fit_the_patch(size: int, patch: int) -> None:
    """Masking needs at least two patches, one hidden and one seen."""
    encoder = {"name": "vit", "patch": patch}
    rule = rf"views.size must be a multiple of model.encoder.patch.*got {size} and {patch}"
    with pytest.raises(SpecError, match=rule):
        parse_spec({"name": "x", "views": {"size": size}, "model": {"encoder": encoder}})
