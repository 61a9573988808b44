"""Convolutions of tiny maps in bfloat16 agree with torch's in float32, with their gradients."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torchvision.models import resnet18

from mtcon_ray.models import convolution
from mtcon_ray.models.convolution import ProductConv2d, use_products
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.models.spec import ModelSpec

CHANNELS = (3, 5)
# kernel, stride, padding, side of the input
TINY = [(3, 1, 1, 2), (3, 2, 1, 1), (3, 2, 1, 4), (3, 2, 1, 3), (1, 2, 0, 4), (1, 1, 0, 1)]
TINY += [(3, 1, 1, 3), (3, 2, 1, 5), (3, 2, 1, 6), (3, 1, 2, 1), (1, 1, 0, 3), (5, 1, 2, 2)]
TINY += [(7, 1, 3, 2), (4, 4, 0, 8), (2, 3, 1, 6), (2, 4, 1, 5)]
LARGE = [(3, 1, 1, 4), (3, 2, 1, 7), (1, 1, 0, 4)]


def both(kernel: int, stride: int, padding: int, bias: bool) -> tuple[nn.Conv2d, nn.Conv2d]:
    """Returns torch's convolution and ours, with the same parameters, exact in bfloat16."""
    torch.manual_seed(0)
    parent = nn.Sequential(nn.Conv2d(*CHANNELS, kernel, stride, padding, bias=bias))
    plain = deepcopy(parent[0])
    use_products(parent)
    ours = parent[0]
    assert isinstance(plain, nn.Conv2d)
    assert isinstance(ours, ProductConv2d)
    with torch.no_grad():
        for parameter, other in zip(plain.parameters(), ours.parameters(), strict=True):
            parameter.copy_(parameter.bfloat16())
            other.copy_(parameter)
    return plain, ours


def values_and_gradients(
    conv: nn.Conv2d, side: int, *, half: bool, products: bool = False
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    x_NCHW = torch.randn(6, CHANNELS[0], side, side, generator=generator).bfloat16().float()
    x_NCHW.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        y_NCHW = conv(x_NCHW)
    assert y_NCHW.dtype == (torch.bfloat16 if half else torch.float32)
    assert y_NCHW.grad_fn is not None
    assert ("Convolution" in y_NCHW.grad_fn.name()) is not products
    upstream = torch.randn(y_NCHW.shape, generator=generator).bfloat16()
    gradients = torch.autograd.grad(y_NCHW, [x_NCHW, *conv.parameters()], upstream.to(y_NCHW.dtype))
    return [each.float() for each in (y_NCHW.detach(), *gradients)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding", "side"), TINY)
def test_tiny_maps(kernel: int, stride: int, padding: int, side: int, bias: bool) -> None:
    """The tolerance is that of bfloat16's eight bits, because sums are taken in float32."""
    plain, ours = both(kernel, stride, padding, bias)
    expected = values_and_gradients(plain, side, half=False)
    found = values_and_gradients(ours, side, half=True, products=True)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2**-7, atol=2**-6)


def test_what_a_pixel_gets_from_several_outputs_is_summed_in_float32() -> None:
    """256 + 1 + 1 + 1 is 259, in bfloat16 260; summed in bfloat16 one by one it is 256."""
    parent = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1, bias=False))
    use_products(parent)
    with torch.no_grad():
        parent.get_parameter("0.weight").fill_(1.0)[0, 0, 1, 1] = 256
    x_NCHW = torch.ones(1, 1, 2, 2, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        parent(x_NCHW).sum().backward()
    assert x_NCHW.grad is not None
    assert x_NCHW.grad.tolist() == [[[[260.0, 260.0], [260.0, 260.0]]]]


@pytest.mark.parametrize("frozen", ["input", "weight"])
def test_no_gradient_is_computed_that_nobody_asks_for(
    frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, conv = both(3, 1, 1, bias=True)
    asked = {**dict(conv.named_parameters()), "input": torch.randn(2, 3, 2, 2, requires_grad=True)}
    asked[frozen].requires_grad_(False)
    # Calling None raises TypeError, so the test fails if this gradient is computed.
    monkeypatch.setattr(convolution, f"_{frozen}_gradient", None)
    with torch.autocast("cpu", torch.bfloat16):
        y_NCHW = conv(asked["input"])
    y_NCHW.sum().backward()
    assert [name for name, each in asked.items() if each.grad is None] == [frozen]


# opcheck reads .grad of copies that are not leaves, which warns.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(("kernel", "stride", "padding", "side"), TINY)
def test_the_operator_is_what_it_tells_torch(
    kernel: int, stride: int, padding: int, side: int, last: bool
) -> None:
    """opcheck compares shapes, dtypes, strides and gradients of eager and traced calls."""
    _, conv = both(kernel, stride, padding, bias=True)
    layout = torch.channels_last if last else torch.contiguous_format
    x_NCHW, weight = (
        each.detach().bfloat16().contiguous(memory_format=layout).requires_grad_()
        for each in (torch.randn(2, 3, side, side), conv.weight)
    )
    bias = torch.randn(5, dtype=torch.bfloat16, requires_grad=True)
    sizes = [stride] * 2, [padding] * 2
    torch.library.opcheck(convolution._convolve, (x_NCHW, weight, bias, *sizes))
    g_NOHW = torch.ones_like(convolution._convolve(x_NCHW, weight, bias, *sizes))
    rest = g_NOHW, x_NCHW.detach(), weight.detach(), *sizes
    torch.library.opcheck(convolution._input_gradient, rest)
    torch.library.opcheck(convolution._weight_gradient, rest)


def test_it_compiles_as_one_graph() -> None:
    """The graph of the forward pass holds the operator as a single call."""
    _, conv = both(3, 1, 1, bias=True)
    expected = values_and_gradients(conv, 2, half=True, products=True)
    graphs: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, inputs: object) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    conv.compile(fullgraph=True, dynamic=False, backend=keep)
    found = values_and_gradients(conv, 2, half=True, products=True)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    (graph,) = graphs
    called = [str(node.target) for node in graph.graph.nodes if "mtcon_ray" in str(node.target)]
    assert len(called) == 1, called


def test_height_and_width_are_told_apart() -> None:
    torch.manual_seed(0)
    parent = nn.Sequential(nn.Conv2d(2, 3, (3, 1), (1, 2), (1, 0)))
    plain = deepcopy(parent[0])
    use_products(parent)
    x_NCHW = torch.randn(2, 2, 2, 4)
    with torch.autocast("cpu", torch.bfloat16):
        ours_NCHW = parent(x_NCHW)
    torch.testing.assert_close(ours_NCHW.float(), plain(x_NCHW), rtol=2**-6, atol=2**-6)
    assert ours_NCHW.grad_fn is not None
    assert "Convolution" not in ours_NCHW.grad_fn.name()


@pytest.mark.parametrize(
    ("shape", "half"), [*((s, True) for s in LARGE), *((s, False) for s in TINY)]
)
def test_larger_maps_and_float32_are_left_to_torch(
    shape: tuple[int, int, int, int], half: bool
) -> None:
    kernel, stride, padding, side = shape
    plain, ours = both(kernel, stride, padding, bias=True)
    expected = values_and_gradients(plain, side, half=half)
    for one, other in zip(values_and_gradients(ours, side, half=half), expected, strict=True):
        assert torch.equal(one, other)


def test_other_inputs_are_torchs_to_take_or_refuse() -> None:
    _, ours = both(3, 1, 0, bias=True)
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(RuntimeError, match="Kernel size can't be greater"):
            ours(torch.randn(1, 3, 2, 2))
        assert ours(torch.randn(3, 4, 4)).shape == (5, 2, 2)
        assert ours.double()(torch.randn(1, 3, 4, 4).double()).dtype == torch.float64


def test_hooks_stay() -> None:
    parent, seen = nn.Sequential(nn.Conv2d(3, 3, 1)), []
    parent[0].register_forward_hook(lambda *_: seen.append("called"))
    use_products(parent)
    parent(torch.randn(1, 3, 2, 2))
    assert seen == ["called"]


def test_a_network_keeps_its_names_and_the_random_state() -> None:
    network = resnet18()
    before = {name: p.data_ptr() for name, p in network.named_parameters()}
    names, state = list(network.state_dict()), torch.get_rng_state()
    use_products(network)
    assert torch.equal(torch.get_rng_state(), state)
    assert list(network.state_dict()) == names
    assert {name: p.data_ptr() for name, p in network.named_parameters()} == before
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert len(convolutions) == 20
    assert all(type(conv) is ProductConv2d for conv in convolutions)


@pytest.mark.parametrize("name", ["resnet18", "small"])
def test_every_networks_convolutions_are_replaced(name: str) -> None:
    spec = ModelSpec.model_validate({"encoder": {"name": name}})
    network = build_network(spec, projections(("a",), dim=4, hidden=None), 0)
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert convolutions
    assert all(type(conv) is ProductConv2d for conv in convolutions)


def test_what_is_not_plain_is_left_alone() -> None:
    odd = nn.Sequential(
        nn.Conv2d(4, 4, 3, groups=2),
        nn.Conv2d(4, 4, 3, dilation=2),
        nn.Conv2d(4, 4, 3, padding="same"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 4, (3, 1), padding=1),
        nn.Conv2d(4, 4, (5, 10)),
    )
    use_products(odd)
    assert all(type(conv) is nn.Conv2d for conv in odd)


def test_a_resnet_of_tiny_images_has_the_gradients_of_float32() -> None:
    """torch 2.15 with oneDNN reads some of these gradients from uninitialised memory."""
    torch.manual_seed(0)
    network = resnet18().eval()
    use_products(network)
    x_NCHW = torch.randn(4, 3, 16, 16)

    def gradient(half: bool) -> Tensor:
        network.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            y_NC = network(x_NCHW)
        y_NC[:, 0].float().sum().backward()
        gradient: Tensor | None = network.get_parameter("layer4.0.conv1.weight").grad
        assert gradient is not None
        return gradient.flatten()

    assert torch.cosine_similarity(gradient(True), gradient(False), dim=0) > 0.99
