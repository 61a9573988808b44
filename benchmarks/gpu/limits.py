"""Rows `speed`, `network`, `small_batch` and `parts`: a training's steps, and their limits.

The limits are the network without views, losses and optimizer, captured in a CUDA graph; the
operations that the network needs, at the rate of a product of matrices; and the bytes that its
layers move one by one, at the rate of a copy. Both rates are measured in the same run.
"""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.gpu.bench import Bench, Lines
from benchmarks.gpu.speed import copy_rate, kernel_seconds, messages, product_rate, seconds_each
from benchmarks.training import network_step, random_views
from benchmarks.views import make_all
from mtcon_ray.losses import small_batch as losses
from mtcon_ray.models.network import ProjectionHead
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.training import step_graph
from mtcon_ray.training.optimizer import make_optimizer, start_momentum
from mtcon_ray.training.trainer import Trainer

PROFILED = 3  # steps
# Ways to compile a network for fixed sizes, in addition to the graph that captures it.
WAYS: dict[str, Callable[..., Any]] = {
    "as it is": lambda network: network,
    "by Inductor": partial(torch.compile, dynamic=False),
    "by Inductor, max-autotune": partial(
        torch.compile, mode="max-autotune-no-cudagraphs", dynamic=False
    ),
}


def speed(bench: Bench) -> Lines:
    """Times a training's steps, next to the device's limits and to its parts alone."""
    for network in bench.networks:
        for how in bench.compile:
            yield title(*network, f"compile {how}"), partial(_speed, bench, *network, how)


def title(encoder: str, size: int, batch_size: int, what: str) -> str:
    """Returns the name of a line."""
    return f"{encoder}, {size} px, batch {batch_size}, {what}"


def _speed(bench: Bench, encoder: str, size: int, batch_size: int, how: str) -> str:
    spec = bench.spec(encoder, size=size, batch_size=batch_size, train__compile=how)
    with messages(step_graph.log) as fell_back:
        run = bench.run(spec, f"speed-{encoder}-{size}-{batch_size}-{how}")
        bench.warm(run)
    num_views = 2 * batch_size
    step = seconds_each(run._train_step, bench)
    launches, busy = kernel_seconds(
        lambda: [run._train_step() for _ in range(PROFILED)], bench.device
    )
    alone = partial(network_step, run, random_views(run), run.learner.forward)
    encoder_alone, captured = seconds_each(alone, bench), seconds_each(capture(alone, run), bench)
    operations = num_operations(alone) / step / product_rate(bench)
    moved = moved_bytes(run, alone) / step / copy_rate(bench)
    stored = torch.from_numpy(np.array(run.dataset.images[:batch_size])).to(bench.device)
    views = seconds_each(partial(make_all, stored, spec.views, batch_size), bench)
    return (
        f"{num_views / step:,.0f} views/s, {1e3 * step:.2f} ms a step, "
        f"{launches / PROFILED:.0f} launches, GPU busy {100 * busy / PROFILED / step:.0f} %; a "
        f"step is {step / captured:.2f} of the captured network; {100 * operations:.0f} % of the "
        f"rate of matrices, {100 * moved:.0f} % of the rate of memory; the encoder alone "
        f"{num_views / encoder_alone:,.0f}, the views alone {num_views / views:,.0f}"
        f"{''.join(f'; {message}' for message in fell_back)}"
    )


def network(bench: Bench) -> Lines:
    """Times the captured network, compiled in several ways."""
    for each in bench.networks:
        for way in WAYS:
            yield title(*each, way), partial(_network, bench, *each, way)


def _network(bench: Bench, encoder: str, size: int, batch_size: int, way: str) -> str:
    # Otherwise a network after another would have code for sizes that vary.
    torch.compiler.reset()
    spec = bench.spec(encoder, size=size, batch_size=batch_size)
    run = bench.run(spec, f"network-{encoder}-{size}-{batch_size}-{way}")
    compiled = WAYS[way](run.learner.forward)
    alone = partial(network_step, run, random_views(run), compiled)
    seconds = seconds_each(capture(alone, run), bench)
    return f"{2 * batch_size / seconds:,.0f} views/s, {1e3 * seconds:.2f} ms"


def small_batch(bench: Bench) -> Lines:
    """Times a training's steps with and without the losses' way for small batches."""
    for network in bench.networks:
        yield title(*network, "losses of small batches"), partial(_small_batch, bench, *network)


def _small_batch(bench: Bench, encoder: str, size: int, batch_size: int) -> str:
    how = bench.compile[-1]
    spec = bench.spec(encoder, size=size, batch_size=batch_size, train__compile=how)
    seconds = []
    with messages(step_graph.log) as fell_back:
        for name, is_small in (("small", losses.is_small), ("large", lambda *_: False)):
            with patch.object(losses, "is_small", is_small):
                run = bench.run(spec, f"losses-{encoder}-{size}-{batch_size}-{name}")
                bench.warm(run)
                seconds.append(seconds_each(run._train_step, bench))
    chosen, without = (1e3 * each for each in seconds)
    found = f"{chosen:.2f} ms a step, {without:.2f} without: {without / chosen:.2f} of it"
    return "; ".join([found, *fell_back])


def parts(bench: Bench) -> Lines:
    """Times parts of a training's step, each in a CUDA graph of its own.

    A technique that makes a part faster saves at most the time of this part.
    """
    for each in bench.networks:
        yield title(*each, "parts of a step"), partial(_parts, bench, *each)


def _parts(bench: Bench, encoder: str, size: int, batch_size: int) -> str:
    how = bench.compile[-1]
    spec = bench.spec(encoder, size=size, batch_size=batch_size, train__compile=how)
    run = bench.run(spec, f"parts-{encoder}-{size}-{batch_size}")
    bench.warm(run)
    step = seconds_each(run._train_step, bench)
    images = torch.from_numpy(np.array(run.dataset.images)).to(bench.device)
    rows_B = torch.randperm(len(images), device=bench.device)[:batch_size]
    h_ND = torch.randn(2 * batch_size, run.network.encoder.width, device=bench.device)
    h_ND.requires_grad_()
    one_by_one, together = heads_of(run)
    torch.testing.assert_close(together(h_ND), one_by_one(h_ND), atol=1e-4, rtol=0)
    ways: dict[str, Callable[[], object]] = {
        "gathering the images": lambda: images[rows_B],
        "heads one by one": lambda: one_by_one(h_ND).sum().backward(),
        "heads in one product": lambda: together(h_ND).sum().backward(),
    }
    for parameter in run.network.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for name in ("sgd", "lars"):
        train = with_values(spec, {"train.optimizer": {"name": name}}).train
        made = make_optimizer(run.network, run.learner.method, train)
        start_momentum(made)
        ways[name.upper()] = made.step
    seconds = {what: seconds_each(capture(do, run), bench) for what, do in ways.items()}
    found = (f"{what} {1e3 * s:.3f} ms ({s / step:.1%})" for what, s in seconds.items())
    return f"{1e3 * step:.2f} ms a step; {', '.join(found)}"


def heads_of(run: Trainer) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Returns functions from features [N, D] to all heads' rows [T, N, width], with their gradient.

    The first one calls the heads of a training, the second one has two products for all of them.
    """
    layers = [(head[0], head[2]) for head in run.network.heads if isinstance(head, ProjectionHead)]
    first, second = (
        [torch.stack([each.get_parameter(name) for each in column]).detach().requires_grad_()
         for name in ("weight", "bias")]
        for column in zip(*layers, strict=True)
    )  # fmt: skip

    def together(h_ND: Tensor) -> Tensor:
        h_TND = h_ND.expand(len(layers), *h_ND.shape)
        for (weight_TOD, bias_TO), is_last in ((first, False), (second, True)):
            h_TND = torch.baddbmm(bias_TO[:, None], h_TND, weight_TOD.mT)
            h_TND = h_TND if is_last else h_TND.relu()
        return F.normalize(h_TND, dim=2)

    return lambda h_ND: torch.stack([*run.network.apply_heads(h_ND).values()]), together


def capture(do: Callable[[], object], run: Trainer) -> Callable[[], object]:
    """Returns a replay of a CUDA graph of the operations of `do`, or `do` itself on a CPU."""
    if run.device.type != "cuda":
        return do
    recorder = step_graph.Recorder(run.device)
    with recorder.beside():
        for _ in range(step_graph.WARM_UP):
            do()
    replay, _ = recorder.record(do)
    return replay


def num_operations(do: Callable[[], object]) -> int:
    """Returns the number of sums and products of products of matrices and of convolutions."""
    with FlopCounterMode(display=False) as counter:
        do()
    return int(counter.get_total_flops())


def moved_bytes(run: Trainer, do: Callable[[], object]) -> int:
    """Returns the bytes that the layers of encoder and heads move in a step `do`, layer by layer.

    Fused layers move less. A layer reads its input and writes its output. Backward it reads its
    input and the gradient of its output, and writes the gradient of its input. Its parameters are
    read twice, and their gradient is written once. The additions of shortcuts are left out.
    """
    total = 0

    def count(layer: nn.Module, given: tuple[Tensor, ...], found: Tensor) -> None:
        nonlocal total
        parameters = sum(each.nbytes for each in layer.parameters())
        total += 3 * given[0].nbytes + 2 * found.nbytes + 3 * parameters

    leaves = [each for each in run.network.modules() if not list(each.children())]
    hooks = [each.register_forward_hook(count) for each in leaves]
    do()
    for hook in hooks:
        hook.remove()
    return total
