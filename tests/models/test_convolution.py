"""Guarded convolutions have right gradients where torch's own have not, or end the process."""

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.models.network import GuardedConv2d, build_network, guard_convolutions
from mtcon_ray.spec.encoders import ModelSpec
from tests.problems import projections

# kernel, stride, padding, height and width of the input
AFFECTED = [(3, 2, 1, 1, 1), (2, 4, 1, 3, 3), (5, 2, 2, 2, 1)]
OTHERS = [(3, 1, 1, 1, 1), (3, 2, 1, 2, 2), (1, 1, 0, 1, 1)]


def values_and_gradients(conv: nn.Conv2d, shape: tuple[int, int], *, half: bool) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    x_NCHW = torch.randn(6, 3, *shape, generator=generator).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        y_NCHW = conv(x_NCHW)
    assert y_NCHW.dtype == (torch.bfloat16 if half else torch.float32)
    upstream = torch.randn(y_NCHW.shape, generator=generator).to(y_NCHW.dtype)
    gradients = torch.autograd.grad(y_NCHW, [x_NCHW, *conv.parameters()], upstream)
    return [each.float() for each in (y_NCHW.detach(), *gradients)]


def pair_of(kernel: int, stride: int, padding: int) -> tuple[nn.Conv2d, nn.Conv2d]:
    """Torch's convolution and the guarded one, with the same parameters."""
    plain = nn.Conv2d(3, 5, kernel, stride, padding)
    guarded = nn.Sequential(nn.Conv2d(3, 5, kernel, stride, padding))
    guarded[0].load_state_dict(plain.state_dict())
    guard_convolutions(guarded)
    assert isinstance(guarded[0], GuardedConv2d)
    return plain, guarded[0]


@pytest.mark.parametrize(("kernel", "stride", "padding", "height", "width"), AFFECTED + OTHERS)
def test_gradients_are_right_and_those_of_other_inputs_torchs_own(
    kernel: int, stride: int, padding: int, height: int, width: int
) -> None:
    plain, guarded = pair_of(kernel, stride, padding)
    expected = values_and_gradients(plain, (height, width), half=False)
    found = values_and_gradients(guarded, (height, width), half=False)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    half = values_and_gradients(guarded, (height, width), half=True)
    if (kernel, stride, padding, height, width) in OTHERS:
        theirs = values_and_gradients(plain, (height, width), half=True)
        assert all(torch.equal(one, other) for one, other in zip(half, theirs, strict=True))
    torch.testing.assert_close(half, expected, rtol=2**-6, atol=2**-5)


@pytest.mark.parametrize("channels", [4, 8])
def test_narrow_convolutions_with_a_stride_leave_memory_alone(channels: int) -> None:
    """On AVX2 torch's own with 4 channels ends the process after some of these steps."""
    conv = nn.Conv2d(channels, 6, 1, 2).to(memory_format=torch.channels_last)
    guard_convolutions(conv)
    for seed in range(30):
        x_NCHW = torch.randn(16, channels, 33, 33, generator=torch.Generator().manual_seed(seed))
        y_NCHW = conv(x_NCHW.contiguous(memory_format=torch.channels_last))
        (found,) = torch.autograd.grad(y_NCHW.square().sum(), conv.weight)
    expected = torch.einsum("nohw,nchw->oc", 2 * y_NCHW, x_NCHW[..., ::2, ::2])
    largest = expected.abs().max().item()
    torch.testing.assert_close(found[..., 0, 0], expected, rtol=1e-4, atol=1e-3 * largest)


def test_every_networks_convolutions_are_guarded() -> None:
    spec = ModelSpec.model_validate({"encoder": {"name": "resnet18"}})
    network = build_network(spec, projections(("a",), dim=4), 0)
    kinds = {type(module) for module in network.modules() if isinstance(module, nn.Conv2d)}
    assert kinds == {GuardedConv2d}
