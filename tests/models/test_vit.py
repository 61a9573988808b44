"""The vision transformer: patches, position codes, view sizes; masks, decoder, LGP's two phases."""

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.models.encoders.vit import ViT, patches, positions
from mtcon_ray.models.masked import Decoder, MaskedNetwork, Seen, see_some, standardise
from mtcon_ray.models.network import ProjectionHead

SMALL = ViT.Spec(patch=4, width=16, depth=2, heads=2)


def images(num_items: int = 5, rows: int = 16, columns: int = 16) -> Tensor:
    """Returns random images [N, 3, rows, columns]."""
    return torch.randn(num_items, 3, rows, columns, generator=torch.Generator().manual_seed(0))


def test_patches_are_cut_row_by_row() -> None:
    """The second of 2 x 3 patches is the upper middle one, the fifth the lower middle one."""
    x_NCHW = images(2, 8, 12)
    cut = patches(x_NCHW, 4)
    assert cut.shape == (2, 6, 3 * 4 * 4)
    assert torch.equal(cut[:, 1], x_NCHW[:, :, :4, 4:8].flatten(1))
    assert torch.equal(cut[:, 4], x_NCHW[:, :, 4:, 4:8].flatten(1))


def test_places_tell_row_and_column_apart() -> None:
    code_PD = positions(2, 3, torch.zeros(1, 8, dtype=torch.float64))
    assert (code_PD.shape, code_PD.dtype) == ((6, 8), torch.float64)
    assert torch.equal(code_PD[1, :4], code_PD[0, :4])  # patches 0 and 1 share a row
    assert torch.equal(code_PD[3, 4:], code_PD[0, 4:])  # patches 0 and 3 share a column
    assert len(torch.unique(code_PD, dim=0)) == 6


def test_patches_know_their_places_and_each_other() -> None:
    """Moving patches changes the features of the image; the order of tokens does not."""
    vit = ViT(SMALL).double()
    x_NCHW = images(2, 8, 12).double()
    assert not torch.allclose(vit(x_NCHW), vit(x_NCHW.roll(4, dims=3)), atol=1e-3)
    token_NPD = vit.tokens(x_NCHW)
    order = torch.tensor([3, 1, 0, 5, 4, 2])
    torch.testing.assert_close(vit.encode(token_NPD[:, order]), vit.encode(token_NPD)[:, order])
    assert not torch.allclose(vit.encode(token_NPD[:, :4]), vit.encode(token_NPD)[:, :4], atol=1e-3)


def parts() -> tuple[ViT, dict[str, nn.Module], Decoder]:
    """Returns an encoder, one head and a decoder with noise levels."""
    torch.manual_seed(0)
    encoder = ViT(SMALL)
    heads: dict[str, nn.Module] = {"a": ProjectionHead(16, dim=6)}
    return encoder, heads, Decoder(encoder, width=16, depth=1, levels=True)


@pytest.mark.parametrize(("ratio", "shown"), [(0.5, 8), (0.75, 4), (0.7, 5), (0.99, 1), (0.01, 15)])
def test_each_row_hides_its_own_share(ratio: float, shown: int) -> None:
    seen = see_some(ViT(SMALL), images(), ratio)
    assert seen.encoded_NKD.shape == (5, shown, 16)
    assert (~seen.hidden_NP).sum(dim=1).tolist() == [shown] * 5
    for places, hidden in zip(seen.place_NK, seen.hidden_NP, strict=True):
        assert sorted(places.tolist()) == (~hidden).nonzero().flatten().tolist()
    assert len(torch.unique(seen.hidden_NP, dim=0)) > 1


def test_hidden_patches_are_not_looked_at() -> None:
    """The pixels of hidden patches do not change the features; those of seen patches do."""
    vit, x_NCHW = ViT(SMALL), images(1)
    torch.manual_seed(3)
    first = see_some(vit, x_NCHW, 0.5)
    for place in range(16):
        row, column = divmod(place, 4)
        other = x_NCHW.clone()
        other[:, :, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1
        torch.manual_seed(3)
        same = torch.equal(first.encoded_NKD, see_some(vit, other, 0.5).encoded_NKD)
        assert same == bool(first.hidden_NP[0, place])


def test_the_decoder_puts_each_seen_patch_in_its_place() -> None:
    """Seen patches in another order, with their indices, give the same values."""
    vit, _, decoder = parts()
    seen = see_some(vit, images(), 0.5)
    level_N = torch.rand(5)
    order = torch.tensor([7, 2, 0, 1, 6, 5, 3, 4])
    moved = Seen(seen.encoded_NKD[:, order], seen.place_NK[:, order], seen.hidden_NP)
    expected = decoder(seen, (4, 4), level_N)
    assert expected.shape == (5, 16, 48)
    torch.testing.assert_close(decoder(moved, (4, 4), level_N), expected)
    misplaced = Seen(seen.encoded_NKD[:, order], seen.place_NK, seen.hidden_NP)
    assert not torch.allclose(decoder(misplaced, (4, 4), level_N), expected, atol=1e-4)
    assert not torch.allclose(decoder(seen, (4, 4), level_N / 2), expected, atol=1e-4)


class Oracle(nn.Module):
    """Decoder stub: returns given values for hidden and for seen patches."""

    def __init__(self, hidden_NPK: Tensor, seen_NPK: Tensor) -> None:
        super().__init__()
        self.hidden_NPK, self.seen_NPK = hidden_NPK, seen_NPK

    def forward(self, seen: Seen, grid: tuple[int, int], level_N: Tensor | None) -> Tensor:
        return torch.where(seen.hidden_NP[:, :, None], self.hidden_NPK, self.seen_NPK)


def test_hidden_patches_are_compared_with_clean_pixels_and_seen_ones_with_the_noise() -> None:
    x_NCHW = images()
    network = MaskedNetwork(*parts(), mask_ratio=0.5, noise_level=1.0)
    torch.manual_seed(5)
    torch.rand(5)
    pixels, noise = standardise(patches(x_NCHW, 4)), patches(torch.randn_like(x_NCHW), 4)
    for oracle, is_right in ((Oracle(pixels, noise), True), (Oracle(noise, pixels), False)):
        network.decoder = oracle  # type: ignore[assignment]
        torch.manual_seed(5)
        rows = network(x_NCHW)
        for errors in (rows["reconstruction"], rows["noise"]):
            assert errors.shape == (5, 1)
            assert errors.max() < 1e-9 if is_right else errors.min() > 0.5


def test_a_graft_trains_the_auto_encoder_first_and_the_heads_then() -> None:
    encoder, heads, _ = parts()
    decoder = Decoder(encoder, width=16, depth=1)
    network = MaskedNetwork(encoder, heads, decoder, mask_ratio=0.75, masked_share=0.5)
    network.progress = 0.49
    rows = network(images())
    assert list(rows) == ["a", "reconstruction"]
    assert not rows["a"].requires_grad
    network.progress = 0.5
    rows = network(images())
    assert rows["reconstruction"].tolist() == [[0.0]] * 5
    torch.testing.assert_close(rows["a"], network.apply_heads(network.encoder(images()))["a"])
