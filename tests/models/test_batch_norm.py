"""Two ranks' batch norm is one process's on the joined batch: values, moments, gradients."""

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.models.network import GlobalBatchNorm, make_global
from mtcon_ray.training.distributed import Ranks
from tests.training.ranks import in_ranks

CASES = ((torch.float64, [3, 5]), (torch.float32, [4, 4]))
OFFSET = 100.0


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """Norms of images in a nest and of rows, with parameters and moments not the defaults."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4, momentum=0.3))
    rows = [nn.Flatten(), nn.BatchNorm1d(36), nn.Tanh(), nn.BatchNorm1d(36, affine=False)]
    net = nn.Sequential(nn.BatchNorm2d(3, eps=1e-3), nn.Tanh(), inner, *rows)
    net = net.append(nn.Unflatten(1, (4, 3, 3))).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    return net.to(dtype)


def batch(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Images [8, 3, 5, 5] far from 0, each half from another place, and the loss's weights."""
    generator = torch.Generator().manual_seed(1)
    x_NCHW = torch.randn(8, 3, 5, 5, generator=generator, dtype=torch.float64)
    x_NCHW = x_NCHW + OFFSET + torch.arange(8.0)[:, None, None, None]
    weight_NCHW = torch.randn(8, 4, 3, 3, generator=generator, dtype=torch.float64)
    return x_NCHW.to(dtype), weight_NCHW.to(dtype)


def step(net: nn.Module, x_NCHW: Tensor, weight_NCHW: Tensor) -> dict[str, Tensor]:
    """Two training steps; outputs and gradients of both, and the running moments."""
    x_NCHW = x_NCHW.clone().requires_grad_()
    y_NCHW = net(x_NCHW)
    (y_NCHW.square() * weight_NCHW).sum().backward()
    y_NCHW = net(x_NCHW * 0.5)
    (y_NCHW * weight_NCHW).sum().backward()
    assert x_NCHW.grad is not None
    gradients = {f"grad {k}": p.grad for k, p in net.named_parameters() if p.grad is not None}
    buffers = {f"buffer {k}": b.double() for k, b in net.named_buffers()}
    return {"y": y_NCHW.detach(), "grad x": x_NCHW.grad, **gradients, **buffers}


def half_precision() -> Tensor:
    """Channels last, the first channel the same everywhere, so that it has no deviation."""
    x_NCHW = batch()[0].to(torch.bfloat16, memory_format=torch.channels_last)
    x_NCHW[:, 0] = 3.0
    return x_NCHW


def shared(net: nn.Module) -> nn.Module:
    make_global(net)
    return net


def steps(ranks: Ranks) -> list[dict[str, Tensor]]:
    """Returns what `step` gives on this rank's part of each split."""
    results = []
    for dtype, split in CASES:
        x_NCHW, weight_NCHW = (part.split(split)[ranks.rank] for part in batch(dtype))
        results.append(step(shared(network(dtype)), x_NCHW, weight_NCHW))
    x_NCHW = half_precision().split([3, 5])[ranks.rank]
    return [*results, step(shared(nn.BatchNorm2d(3)), x_NCHW, x_NCHW.float().sin())]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Tensor]]]:
    """Per rank and case, what two real processes computed."""
    return in_ranks(steps, 2, tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
@pytest.mark.parametrize("case", range(len(CASES)), ids=["float64, 3+5", "float32, 4+4"])
def test_two_ranks_equal_one_process(case: int, two_ranks: list[list[dict[str, Tensor]]]) -> None:
    dtype, _ = CASES[case]
    tolerance = 1e-10 if dtype == torch.float64 else 1e-3
    expected = step(network(), *batch())
    parts = [two_ranks[rank][case] for rank in range(2)]
    assert set(parts[0]) == set(expected)
    for name, value in expected.items():
        if name in ("y", "grad x"):
            ours = torch.cat([part[name] for part in parts])
        elif name.startswith("grad"):
            ours = parts[0][name] + parts[1][name]
        else:
            ours = parts[0][name]
            assert torch.equal(ours, parts[1][name]), name
        assert name.startswith("buffer") or ours.dtype == dtype
        assert torch.allclose(ours.double(), value, tolerance, tolerance), name


@pytest.mark.slow
def test_half_precision_is_normalised_in_float32(two_ranks: list[list[dict[str, Tensor]]]) -> None:
    x_NCHW = half_precision()
    expected = step(nn.BatchNorm2d(3), x_NCHW, x_NCHW.float().sin())
    parts = [two_ranks[rank][-1] for rank in range(2)]
    for name in ("y", "grad x"):
        ours = torch.cat([part[name] for part in parts])
        assert ours.dtype == torch.bfloat16
        assert all(part[name].is_contiguous(memory_format=torch.channels_last) for part in parts)
        assert torch.allclose(ours.float(), expected[name].float(), 2e-2, 2e-2), name
    total = parts[0]["grad weight"] + parts[1]["grad weight"]
    assert torch.allclose(total, expected["grad weight"], 1e-2, 1e-2)


def test_alone_it_is_batch_norm_itself() -> None:
    expected, ours = step(network(), *batch()), step(shared(network()), *batch())
    assert all(torch.equal(ours[name], expected[name]) for name in expected)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_parameters_names_and_mode_stay(on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU it is torch's own. Chosen by the device alone; its values only GPUs can show."""
    before = network().eval()
    parameters, keys = list(before.parameters()), list(before.state_dict())
    before[0].train()
    monkeypatch.setattr(nn.Parameter, "is_cuda", on_gpu, raising=False)
    after = shared(before)
    assert list(after.state_dict()) == keys
    assert all(a is b for a, b in zip(after.parameters(), parameters, strict=True))
    norms = [m for m in after.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert [type(m) for m in norms] == [nn.SyncBatchNorm if on_gpu else GlobalBatchNorm] * 4
    assert [(m.training, m.eps, m.momentum, m.affine) for m in norms] == [
        (True, 1e-3, 0.1, True), (False, 1e-5, 0.3, True),
        (False, 1e-5, 0.1, True), (False, 1e-5, 0.1, False),
    ]  # fmt: skip
