"""No method's step makes the host wait for a GPU.

Where there is no GPU, tensors without storage stand for those on one: they take the branches of
"not a CPU", whatever would have to look at a value fails on them, and copies to them are seen.
What a real one adds (libraries that wait by themselves) only the last test can tell.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim import SGD
from torch.utils._python_dispatch import TorchDispatchMode

from mtcon_ray.data.batch import Batch
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.losses.similarity import LabelSets
from mtcon_ray.methods import METHODS
from mtcon_ray.models import batch_norm
from mtcon_ray.models.batch_norm import GlobalBatchNorm, make_global
from mtcon_ray.models.network import build_network, projections
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.run import Run
from mtcon_ray.training.distributed import Ranks
from mtcon_ray.training.step import update
from tests.methods.test_contract import VARIANTS, make_data, make_run, make_spec

META = torch.device("meta")
LOOKING = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero"),
    *("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive"),
    "lift_fresh",  # of torch.tensor and new_tensor: numbers of the host
}


class Waited(Exception):
    """The host would have waited for the device."""


class NoWaiting(TorchDispatchMode):
    """Raises Waited where a tensor on the device is looked at, or one is copied to it at once."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        first = args[0] if args else None
        on_device = isinstance(first, Tensor) and first.device == META
        if on_device and (name in LOOKING or _by_mask(name, args)):
            raise Waited(name)
        goal = kwargs.get("device") if name == "_to_copy" else None
        moved = goal is not None and (goal == META) != on_device
        if moved and not kwargs.get("non_blocking"):
            raise Waited(name)
        if name == "copy_" and on_device and args[1].device != META:
            raise Waited(name)
        return func(*args, **kwargs)


def _by_mask(name: str, args: tuple[Any, ...]) -> bool:
    """Whether a mask chooses the rows: how many there are is then looked up."""
    indices = args[1] if name in ("index", "index_put", "index_put_") else ()
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices)


class Still(SGD):
    """Changes nothing: torch's own fused step takes no tensor without storage."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        del closure


@contextmanager
def without_autocast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Which has no word for such tensors."""
    original, is_enabled = torch.autocast, torch.is_autocast_enabled

    def autocast(device: str, *args: Any, **options: Any) -> Any:
        return nullcontext() if device == "meta" else original(device, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "autocast", autocast)
        patch.setattr(torch, "is_autocast_enabled", lambda d: d != "meta" and is_enabled(d))
        yield


def there(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """On the device."""
    return {name: x.to(META) for name, x in tensors.items()}


def move(run: Run) -> tuple[Callable[[], Tensor], Batch]:
    """All that a step needs is on the device; its views and its labels."""
    learner = run.learner
    for module in (learner.network, learner.method, learner.teacher):
        if module is not None:
            module.to(META)
    x_NCHW, batch = run._batches(0)
    moved = Batch(
        there(batch.labels),
        batch.num_items,
        there(batch.label_sets),
        there(batch.numbers),
        None if batch.condition is None else batch.condition.to(META),
    )
    return lambda: torch.empty(x_NCHW.shape, device=META), moved


def two_steps(run: Run, monkeypatch: pytest.MonkeyPatch, *, chunks: bool = False) -> None:
    """So that what is kept from one to the next is met. Raises Waited."""
    make_views, batch = move(run)
    parameters = [*run.network.parameters(), *run.learner.method.parameters()]
    learner = replace(run.learner, optimizer=Still(parameters), max_grad_norm=1.0)
    half = len(make_views()) // 2
    parts = [lambda: make_views()[:half], lambda: make_views()[half:]]
    with without_autocast(monkeypatch), NoWaiting():
        for step in range(2):
            views = parts if chunks else make_views()
            update(learner, views, batch, lr=0.1, step=step, num_steps=20)


@pytest.mark.parametrize("name", [*METHODS, *VARIANTS])
def test_a_step_never_waits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check afterwards does."""
    run = make_run(make_spec(name), tmp_path / "store", tmp_path / "run")
    two_steps(run, monkeypatch)
    with pytest.raises(RuntimeError, match="meta"):
        run.learner.watch.check()


@pytest.mark.parametrize("name", ["mtcon", "moco"])
def test_a_step_in_chunks_never_waits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(make_spec(name), tmp_path / "store", tmp_path / "run")
    two_steps(run, monkeypatch, chunks=True)


@pytest.mark.parametrize("name", ["mtcon", "simsiam", "moco"])
def test_a_step_of_several_ranks_never_waits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one batch norm, whose moments, like the rows, come from all ranks."""
    run = make_run(make_spec(name), tmp_path / "store", tmp_path / "run")
    make_global(run.network)
    norms = [m for m in run.network.modules() if isinstance(m, GlobalBatchNorm)]
    run.learner = replace(run.learner, ranks=Ranks(0, 2))
    exchanged: list[Tensor] = []
    monkeypatch.setattr(batch_norm, "_is_shared", lambda group: True)
    monkeypatch.setattr(dist, "all_reduce", lambda x, **options: exchanged.append(x))
    monkeypatch.setattr(dist, "all_gather_into_tensor", lambda out, x: exchanged.append(x))
    two_steps(run, monkeypatch)
    assert len(exchanged) > 2 * (2 * len(norms) - 1) > 0
    assert all(x.device == META for x in exchanged)


@pytest.mark.parametrize("counts", [False, True])
def test_label_sets_of_a_large_batch_never_wait(counts: bool) -> None:
    """They are not grouped, whose number would have to be looked at."""
    sets_BL = torch.empty(1024, 65, dtype=torch.uint8, device=META)
    z_HBVD = torch.empty(1, 1024, 2, 4, device=META)
    with NoWaiting():
        relation = LabelSets(sets_BL, threshold=0.3, counts=counts)
        assert relation.num_groups(z_HBVD).shape == (1,)
        assert relation.sums(z_HBVD).shape == z_HBVD.shape


def test_views_are_made_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was drawn lies on the host and is sent."""
    spec = ViewsSpec(size=8, grayscale=0.5, blur=0.5)
    drawn = draw_parameters(32, 10, spec, torch.Generator().manual_seed(0))
    images = torch.empty(16, 10, 10, 3, dtype=torch.uint8, device=META)
    with without_autocast(monkeypatch), NoWaiting():
        assert make_views(images, drawn, spec).shape == (32, 3, 8, 8)


def test_features_are_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not after each batch."""
    spec = ModelSpec.model_validate({"encoder": {"name": "small", "width": 4}, "head_dim": 4})
    network = build_network(spec, projections(("a",), dim=4, hidden=None), seed=0).to(META)
    given: list[int] = []
    encode = network.features

    def counted(x_NCHW: Tensor) -> Tensor:
        given.append(len(x_NCHW))
        return encode(x_NCHW)

    monkeypatch.setattr(network, "features", counted)
    images, rows = np.zeros((9, 10, 10, 3), np.uint8), np.arange(9)
    with without_autocast(monkeypatch), NoWaiting(), pytest.raises(Waited, match="_to_copy"):
        extract_features(network, images, rows, ViewsSpec(size=8), batch_size=4, device=META)
    assert given == [4, 4, 1]


@pytest.mark.parametrize(
    "look",
    [
        lambda x: x.item(),
        lambda x: x.tolist(),
        bool,
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x.unique(),
        lambda x: x.masked_select(x > 0),
        lambda x: x.new_tensor([1.0]),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: x + torch.ones(1).to(x.device),
        lambda x: x.copy_(torch.ones(1)),
        lambda x: x.fill_(0).__setitem__(x > 0, torch.zeros(1, device=x.device)),
    ],
)
def test_what_waits_is_found(look: Callable[[Tensor], Any]) -> None:
    with pytest.raises(Waited), NoWaiting():
        look(torch.empty(1, device=META))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", [*METHODS, *VARIANTS])
def test_a_step_never_waits_for_a_gpu(name: str, tmp_path: Path) -> None:
    """Labels, images, views, seeds and sums too."""
    spec = make_spec(name)
    device = torch.device("cuda")
    run = Run(spec, make_data(spec, tmp_path / "store"), tmp_path / "run", device=device)
    for step in range(3):  # the first two find algorithms and fill the allocator
        torch.cuda.set_sync_debug_mode("error" if step == 2 else "default")
        try:
            run._train_step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    run.learner.watch.check()
