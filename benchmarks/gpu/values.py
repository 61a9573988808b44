"""Rows that compare a GPU's values with the CPU's, or with another computation on the GPU."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from benchmarks.gpu.bench import Bench, Lines
from mtcon_ray.data.views import draw_parameters, make_views
from mtcon_ray.errors import DivergedError
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.spec.views import ViewsSpec
from mtcon_ray.testing import check_chunks, start
from mtcon_ray.training.step import Update, compute_gradients, update
from mtcon_ray.training.trainer import Trainer
from tests.methods.cases import make_data, make_spec

CPU = torch.device("cpu")
# Allowed relative errors: float64 and float32 sums in another order, and an optimizer's parameters
# after some float32 steps. A transformer's position codes are always float32.
FLOAT64, CODES, FLOAT32, TRAINED = 1e-8, 1e-6, 1e-4, 1e-2
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "sgd": {"train.optimizer": "sgd", "train.momentum": 0.9},
    "sgd without momentum": {"train.optimizer": "sgd", "train.momentum": 0.0},
    "adam": {"train.optimizer": "adam"},
    "adamw": {"train.optimizer": "adamw"},
    "lars": {"train.optimizer": "lars"},
}
VIEWS: dict[str, dict[str, Any]] = {
    "default": {},
    "blur": {"blur": 1.0},
    "solarise": {"solarise": 1.0, "grayscale": 0.5},
    "no jitter": {"jitter": 0.0},
}


class HostRandom(TorchFunctionMode):
    """Mode in which a device draws the CPU's random numbers instead of its own."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.rand and "device" in kwargs:
            return func(*args, **{**kwargs, "device": "cpu"}).to(kwargs["device"])
        if func is torch.randn_like:
            return func(args[0].cpu(), *args[1:], **kwargs).to(args[0].device)
        return func(*args, **kwargs)


@contextmanager
def plain_float32() -> Iterator[None]:
    """Switches TF32 off."""
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before


@contextmanager
def repeatable() -> Iterator[None]:
    """Switches TF32 off, and makes cuDNN compute each step's sums in the same order.

    Otherwise some methods' trainings differ after a few steps by more than a wrong step would.
    """
    cudnn = torch.backends.cudnn
    before = cudnn.deterministic, cudnn.benchmark
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        with plain_float32():
            yield
    finally:
        cudnn.deterministic, cudnn.benchmark = before


def error_of(found: Tensor, expected: Tensor) -> float:
    """Returns the norm of the difference divided by the expected norm."""
    found, expected = found.detach().cpu().double(), expected.detach().cpu().double()
    error: float = ((found - expected).norm() / expected.norm().clamp(min=1e-30)).item()
    return error


def check(what: str, error: float, most: float) -> str:
    """Returns the error as text. Raises AssertionError if it is too large."""
    assert error <= most, f"{what} differ by {error:.1e}, {most:.0e} is allowed"
    return f"{what} {error:.0e}"


def all_of(run: Trainer, *, gradients: bool = False) -> Tensor:
    """Returns all parameters of network and method, or their gradients, as one vector."""
    parameters = [*run.network.parameters(), *run.learner.method.parameters()]
    values = [p.grad if gradients else p for p in parameters]
    return torch.cat([x.detach().flatten() for x in values if x is not None])


def small_run(bench: Bench, spec: RunSpec, name: str, device: torch.device) -> Trainer:
    """Returns a training on synthetic images of 16 pixels."""
    folder = bench.folder / f"{name}-{device.type}"
    return Trainer(spec, make_data(spec, bench.folder / "store"), folder, device=device)


def methods(bench: Bench) -> Lines:
    """Compares each method's first step in float64, and counts the synchronisations of a step."""
    for name in bench.methods:
        yield name, partial(_method, bench, name)
    yield "a scaled loss", partial(_float16, bench)


def _method(bench: Bench, name: str) -> str:
    spec = make_spec(name)
    runs = [small_run(bench, spec, name, device) for device in (CPU, bench.device)]
    x_NCHW, _ = runs[0]._batches(0)
    losses, gradients = [], []
    for run in runs:
        learner = run.learner
        for module in (learner.network, learner.method, learner.teacher):
            if module is not None:
                module.double()
        _, batch = run._batches(0)
        torch.manual_seed(0)
        with HostRandom():
            done = compute_gradients(learner, x_NCHW.to(run.device).double(), batch)
        losses.append(done.objective)
        gradients.append(all_of(run, gradients=True))
    allowed = CODES if spec.model.encoder.name == "vit" else FLOAT64
    loss = check("loss", error_of(losses[1], losses[0]), allowed)
    gradient = check("gradients", error_of(gradients[1], gradients[0]), allowed)
    half = with_values(spec, {"train.precision": bench.half})
    return f"{loss}, {gradient}, {waits(small_run(bench, half, f'{name}-half', bench.device))}"


def _float16(bench: Bench) -> str:
    spec = with_values(make_spec("mtcon"), {"train.precision": "float16"})
    return waits(small_run(bench, spec, "float16", bench.device))


def waits(run: Trainer, *, steps: int = 2) -> str:
    """Returns a text if a step after `steps` others does not synchronise; raises otherwise."""
    for _ in range(steps):  # the first steps choose algorithms and fill the allocator's cache
        run._train_step()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        found.clear()  # drops the warning about the mode itself, given once in a process
        try:
            run._train_step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    run.learner.watch.check()
    at = [f"{Path(w.filename).name}:{w.lineno}" for w in found if "synchroniz" in str(w.message)]
    assert not at, f"{len(at)} synchronisations a step, at {', '.join(sorted(set(at)))}"
    return "no synchronisation"


def views(bench: Bench) -> Lines:
    """Compares views with the CPU's views, also at odd sizes."""
    for size in (*bench.sizes, 37):
        for name, changes in VIEWS.items():
            yield f"{size} px, {name}", partial(_views, bench, ViewsSpec(size=size, **changes))


def _views(bench: Bench, spec: ViewsSpec) -> str:
    B, S = 16, round(1.25 * spec.size)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (B, S, S, 3), dtype=torch.uint8, generator=generator)
    drawn = draw_parameters(2 * B, S, spec, generator)
    found = make_views(images.to(bench.device), drawn, spec)
    return check("values", error_of(found, make_views(images, drawn, spec)), FLOAT32)


def optimizers(bench: Bench) -> Lines:
    """Compares three steps with the CPU's. A step after a non-finite loss must do nothing."""
    for name, changes in OPTIMIZERS.items():
        yield name, partial(_optimizer, bench, name, changes)


def _optimizer(bench: Bench, name: str, changes: dict[str, Any]) -> str:
    spec = with_values(make_spec("mtcon"), {"train.precision": "float32", **changes})
    runs = [small_run(bench, spec, name, device) for device in (CPU, bench.device)]
    batches = [runs[0]._batches(step) for step in range(4)]

    def step(run: Trainer, i: int) -> Update:
        views, _ = batches[i]
        _, batch = run._batches(i)
        return update(run.learner, views.to(run.device), batch, lr=0.01, step=i, num_steps=10)

    with plain_float32():
        for run in runs:
            for i in range(3):
                step(run, i)
    error = check("parameters", error_of(all_of(runs[1]), all_of(runs[0])), TRAINED)
    run, before = runs[1], all_of(runs[1])
    infinite = before.new_full((), torch.inf)
    run.learner.watch.see(infinite, infinite, step=3)
    step(run, 3)
    check("parameters after a step that is not finite", error_of(all_of(run), before), 0.0)
    try:
        run.learner.watch.check()
    except DivergedError:
        return f"{error}, stopped by a loss that is not finite; {restrided(run)}"
    raise AssertionError("a loss that is not finite must end the training")


def restrided(run: Trainer) -> str:
    """Returns how many gradients have other strides than their parameters before the copy.

    `match_strides` copies these gradients.
    """
    views, batch = run._batches(0)
    compute_gradients(run.learner, views, batch)
    parameters = [p for p in run.network.parameters() if p.grad is not None]
    differ = sum(p.grad.stride() != p.stride() for p in parameters if p.grad is not None)
    return f"{differ} of {len(parameters)} gradients have other strides"


def graphs(bench: Bench) -> Lines:
    """Compares trainings with and without CUDA graphs, and counts synchronisations."""
    for name in bench.methods:
        yield name, partial(_graphs, bench, name, {})
    for optimizer, changes in OPTIMIZERS.items():
        yield optimizer, partial(_graphs, bench, "mtcon", changes)


def _graphs(bench: Bench, name: str, changes: dict[str, Any]) -> str:
    """Trains until the graph has been replayed; for LGP, until its second phase's graph has."""
    spec = with_values(make_spec(name, steps=5), {"train.precision": "float32", **changes})
    name = "-".join(["graph", name, *map(str, changes.values())])
    runs = [
        small_run(bench, with_values(spec, {"train.compile": how}), f"{name}-{how}", bench.device)
        for how in ("none", "graphs")
    ]
    with repeatable():
        for run in runs:
            for _ in range(run.num_steps):
                run._train_step()
            run.learner.watch.check()
    graph = runs[1]._graph
    assert graph is not None
    assert graph._recorded is not None, "capturing failed"
    expected, loss = (torch.tensor(run._tally.means()) for run in runs)
    losses = check("losses", error_of(loss, expected), TRAINED)
    error = f"{losses}, {check('parameters', error_of(all_of(runs[1]), all_of(runs[0])), TRAINED)}"
    half = with_values(spec, {"train.precision": bench.half, "train.compile": "graphs"})
    return f"{error}, {waits(small_run(bench, half, f'{name}-replayed', bench.device), steps=6)}"


def chunks(bench: Bench) -> Lines:
    """Compares the gradients of chunks with the gradients of a single graph, in float64."""
    changes = {"train.chunk_size": 6, "model.batch_norm": "local"}
    for name in bench.methods[:1]:
        yield name, partial(_chunks, bench, with_values(make_spec(name), changes))


def _chunks(bench: Bench, spec: RunSpec) -> str:
    run = small_run(bench, spec, "chunks", bench.device)
    check_chunks(run)
    chunked = with_values(spec, {"train.chunk_size": 8})
    return f"gradients equal, {waits(small_run(bench, chunked, 'chunks-steps', bench.device))}"


def streaming(bench: Bench) -> Lines:
    """Compares views of images sent step by step with views of images on the device."""
    yield "views", partial(_streaming, bench)


def _streaming(bench: Bench) -> str:
    spec = with_values(make_spec("mtcon"), {"train.precision": bench.half})
    near, far = (small_run(bench, spec, name, bench.device) for name in ("near", "far"))
    assert not near._batches._feed.streams, "the images must fit on the device"
    far._batches._feed._resident = None
    far._batches._feed.streams = True
    for step in range(3):
        (found, _), (expected, _) = far._batches(step), near._batches(step)
        check("views", error_of(found, expected), 0.0)
    return f"equal, {waits(far)}"


def resume(bench: Bench) -> Lines:
    """Continues a CPU's checkpoint on the device, and the device's checkpoint on the CPU."""
    yield "CPU, GPU, CPU", partial(_resume, bench)


def _resume(bench: Bench) -> str:
    # Two epochs of three steps: over many steps, rounding errors would grow.
    spec = with_values(make_spec("mtcon", steps=3), {"train.precision": "float32"})
    data, folder = make_data(spec, bench.folder / "store"), bench.folder / "resumed"

    def until(last: int, device: torch.device) -> Trainer:
        run = Trainer(spec, data, folder, device=device, should_stop=lambda: run.step == last)
        run.resume()
        for _ in run:
            pass
        return run

    with plain_float32():
        for last, device in ((2, CPU), (5, bench.device), (6, CPU)):
            run = until(last, device)
            assert run.step == last, f"stopped at step {run.step}, not {last}"
        whole = start(spec, bench.folder / "store", bench.folder / "whole")
        for _ in whole:
            pass
    return check("parameters", error_of(all_of(run), all_of(whole)), TRAINED)
