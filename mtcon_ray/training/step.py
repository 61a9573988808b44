"""One optimizer step: this rank's views, all ranks' embeddings, losses, gradients, update."""

import math
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from mtcon_ray.base import metrics
from mtcon_ray.data.batch import Batch
from mtcon_ray.errors import DivergedError
from mtcon_ray.methods.base import Method, MethodOutput
from mtcon_ray.models.network import Network, build_network
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.training import distributed, optimizer as optimizers
from mtcon_ray.training.batches import Chunks
from mtcon_ray.training.device import pick_autocast
from mtcon_ray.training.distributed import Ranks

# The scale is halved at each overflowing gradient. Below this limit the scale is not the cause.
LEAST_SCALE = 1e-4
# The parts of a learner that change in a step. Teacher and average may be None.
PARTS = ("network", "method", "teacher", "average", "optimizer", "scaler")


@dataclass(frozen=True)
class Learner:
    """The state changed by an update, and the parts that compute the update.

    `forward` is the network, or DDP around it. `teacher` is the momentum copy of the network, if
    the method has a teacher. `average` is the network averaged over the steps by `ema`, if the spec
    has `train.ema`. Only a fused optimizer can skip a step on the GPU.
    With float16 the `scaler` is enabled: the loss is multiplied by its scale, which keeps gradients
    from underflowing, and steps with an overflowing gradient are skipped.
    """

    network: Network
    forward: nn.Module
    method: Method
    optimizer: Optimizer
    ranks: Ranks
    autocast_dtype: torch.dtype | None = None
    max_grad_norm: float | None = None
    teacher: Network | None = None
    average: Network | None = None
    ema: float | None = None
    scaler: GradScaler = field(default_factory=lambda: GradScaler(enabled=False))
    watch: optimizers.Watch = field(default_factory=optimizers.Watch)

    def state(self) -> dict[str, Any]:
        """Returns what a resumed training needs, as tensors and plain values."""
        parts = {name: getattr(self, name) for name in PARTS}
        return {n: None if p is None else p.state_dict() for n, p in parts.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state` returned."""
        for name in PARTS:
            if (part := getattr(self, name)) is not None:
                part.load_state_dict(state[name])

    def check(self) -> None:
        """Raises DivergedError if a loss or gradient was not finite. Waits for the device."""
        self.watch.check()
        if (scale := self.scaler.get_scale()) < LEAST_SCALE:
            raise DivergedError(
                f"gradient must be finite in float16 at a loss scale of {LEAST_SCALE:g} or more, "
                f"got an overflow at every scale down to {scale:.2g}; use train.precision float32 "
                "or bfloat16"
            )


def make_learner(
    method: Method, spec: RunSpec, *, device: torch.device, ranks: Ranks, store: Path | None = None
) -> Learner:
    """Returns the state before the first step, on the device. `store` has published weights."""
    train = spec.train
    network = build_network(spec.model, method.make_network, spec.seed, store=store).to(device)
    network = network.to(memory_format=torch.channels_last)
    dtype = pick_autocast(train.precision, device)
    return Learner(
        network=network,
        forward=distributed.parallelise(network, ranks, batch_norm=spec.model.batch_norm),
        method=method,
        optimizer=optimizers.make_optimizer(network, method, train),
        ranks=ranks,
        autocast_dtype=dtype,
        max_grad_norm=train.max_grad_norm,
        teacher=None if method.momentum is None else deepcopy(network).requires_grad_(False),
        average=None if train.ema is None else deepcopy(network).requires_grad_(False),
        ema=train.ema,
        scaler=GradScaler(device.type, enabled=dtype == torch.float16),
    )


@dataclass(frozen=True)
class Update:
    """Results of an update, detached, on the device, with weight and sigma as in the objective."""

    objective: Tensor
    output: MethodOutput
    weight_by_head: dict[str, Tensor]
    sigma_by_task: dict[str, Tensor]


@dataclass
class Tally:
    """Sums over the steps of the current epoch. Tensors stay on the device."""

    num_steps: int = 0
    seconds: float = 0.0
    losses: Tensor | None = None  # float64 [1 + heads]: objective, then each head's loss

    def add(self, done: Update) -> None:
        """Adds an update."""
        losses = torch.stack([done.objective, *done.output.losses.values()]).double()
        # The sums of a checkpoint are on the CPU.
        self.losses = losses if self.losses is None else self.losses.to(losses.device) + losses
        self.num_steps += 1

    def means(self) -> list[float]:
        """Returns the means of objective and each head's loss. Synchronises with the device."""
        assert self.losses is not None
        return (self.losses / self.num_steps).tolist()


def epoch_metrics(tally: Tally, last: Update, *, lr: float, num_images: int) -> dict[str, float]:
    """Returns an epoch's mean losses, and weights, sigmas and finite gauges of its last step.

    `lr` is the last step's, `num_images` the number per step. Synchronises with the device.
    """
    objective, *losses = tally.means()
    speed = tally.num_steps * num_images / tally.seconds
    values = {metrics.LOSS: objective, metrics.LEARNING_RATE: lr, metrics.IMAGES_PER_SECOND: speed}
    slugs = metrics.slugs(last.output.losses)
    values |= zip(map(metrics.loss, slugs.values()), losses, strict=True)
    values |= {metrics.weight(slugs[h]): w.item() for h, w in last.weight_by_head.items()}
    values |= {metrics.sigma(slugs[t]): s.item() for t, s in last.sigma_by_task.items()}
    return values | {name: g.item() for name, g in last.output.gauges().items() if math.isfinite(g)}


def encode(learner: Learner, x_NCHW: Tensor, *, teach: bool = True) -> dict[str, Tensor]:
    """Returns this rank's rows z_ND of each head, with a teacher [query | key] on the last axis.

    Returns only the queries with `teach=False`.
    """
    device, dtype = x_NCHW.device.type, learner.autocast_dtype
    with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        z_by_head: dict[str, Tensor] = learner.forward(x_NCHW)
        if not teach or learner.teacher is None:
            return z_by_head
        with torch.no_grad():
            key_by_head = learner.teacher(x_NCHW)
    return {head: torch.cat([z_ND, key_by_head[head]], dim=1) for head, z_ND in z_by_head.items()}


def gather(z_by_head: dict[str, Tensor], ranks: Ranks, num_examples: int) -> dict[str, Tensor]:
    """Returns each head's rows z_BVD of the whole global batch, gathered from all ranks."""
    # All heads in one exchange, because its latency costs more than its bytes.
    together = distributed.gather_rows(torch.cat(list(z_by_head.values()), dim=1), ranks)
    widths = [z_ND.shape[1] for z_ND in z_by_head.values()]
    parts = together.unflatten(0, (num_examples, -1)).split(widths, dim=2)
    return dict(zip(z_by_head, parts, strict=True))


def compute_gradients(learner: Learner, views: Tensor | Chunks, batch: Batch) -> Update:
    """Leaves the gradient of the global loss in every `.grad`, the same on every rank.

    In float16 it is the gradient of the scaled loss.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    if not isinstance(views, Tensor) and len(views) == 1:
        views = views[0]()
    if isinstance(views, Tensor):
        done = backward(learner, encode(learner, views), batch)
    else:
        done = _backward_in_chunks(learner, views, batch)
    distributed.average_gradients(learner.method, learner.ranks)
    return done


def backward(learner: Learner, z_by_head: dict[str, Tensor], batch: Batch) -> Update:
    """Computes the objective from the rows, and gradients as far as the rows' graph reaches."""
    method, weighting = learner.method, learner.method.weighting
    output = method.check(method(gather(z_by_head, learner.ranks, batch.num_items), batch))
    sigma_by_task = weighting.sigma_by_task()
    objective, weight_by_head = weighting(output.losses)
    learner.scaler.scale(objective).backward()
    detached = output._replace(losses={h: loss.detach() for h, loss in output.losses.items()})
    return Update(objective.detach(), detached, weight_by_head, sigma_by_task)


def chunk_seeds(num_chunks: int) -> list[int]:
    """Returns a seed per chunk for randomness in the network, such as dropout.

    A chunk is encoded twice in a step and must get the same random numbers both times.
    """
    return torch.randint(2**62, (num_chunks,), device="cpu").tolist()


def _backward_in_chunks(learner: Learner, chunks: Chunks, batch: Batch) -> Update:
    """Computes the result of `backward` with the graph of only one chunk in memory.

    This is gradient caching, Gao et al. 2021, arXiv:2101.06983: encode all chunks without a graph,
    compute the loss's gradient on these rows, then encode each chunk again with a graph and pass
    its rows' part of the gradient to the parameters.
    """
    seeds = chunk_seeds(len(chunks))

    def views_of(i: int) -> Tensor:
        x_NCHW = chunks[i]()
        torch.manual_seed(seeds[i])
        return x_NCHW

    with torch.no_grad():
        found = [encode(learner, views_of(i)) for i in range(len(chunks))]
    whole = {head: torch.cat([z[head] for z in found]).requires_grad_() for head in found[0]}
    done = backward(learner, whole, batch)
    # Each head has a gradient, even a head without a loss, because `gather` joins them.
    gradients = {head: z_ND.grad for head, z_ND in whole.items() if z_ND.grad is not None}
    end = 0
    # The first encoding has updated the running moments. The second must not do so again.
    kept = [buffer.clone() for buffer in learner.network.buffers()]
    for i in range(len(chunks)):
        x_NCHW = views_of(i)
        with distributed.exchange_gradients(learner.forward, i == len(chunks) - 1):
            again = encode(learner, x_NCHW, teach=False)
            # Joined, because a head may be without gradient in a phase of training.
            query_NW = torch.cat(list(again.values()), dim=1)
            start, end = end, end + len(query_NW)
            parts = [gradients[h][start:end, : z_ND.shape[1]] for h, z_ND in again.items()]
            query_NW.backward(torch.cat(parts, dim=1))
    for buffer, before in zip(learner.network.buffers(), kept, strict=True):
        buffer.copy_(before)
    return done


def update(
    learner: Learner, views: Tensor | Chunks, batch: Batch, *, lr: float, step: int, num_steps: int
) -> Update:
    """Makes an optimizer step at this learning rate, the step'th of num_steps, from 0.

    Causes no device synchronisation. From the first step with a non-finite gradient or loss on, no
    parameter changes. In float16 only the non-finite steps change none. `learner.check` then
    raises an error. Call it before anything is saved.
    """
    prepare(learner, lr=lr, step=step, num_steps=num_steps)
    return make_step(learner, views, batch, step)


def prepare(learner: Learner, *, lr: float, step: int, num_steps: int) -> None:
    """Sets the progress of training and the learning rates for a step."""
    learner.network.progress = learner.method.progress = step / num_steps
    optimizers.set_lr(learner.optimizer, lr, learner.method.lr_scales())


def make_step(
    learner: Learner, views: Tensor | Chunks, batch: Batch, step: float | Tensor
) -> Update:
    """Makes the step of `update` after `prepare`.

    It depends on two values of the host: the step, which is recorded, and the network's phase. So
    with a tensor for the step a CUDA graph can contain it.
    """
    optimizer, scaler = learner.optimizer, learner.scaler
    done = compute_gradients(learner, views, batch)
    scaler.unscale_(optimizer)
    trained = [p for g in optimizer.param_groups for p in g["params"] if p.grad is not None]
    norm = get_total_norm([p.grad for p in trained])
    learner.watch.see(norm, done.objective, step=step, is_scaled=scaler.is_enabled())
    optimizers.match_strides(trained)
    optimizers.start_momentum(optimizer)
    if learner.max_grad_norm is not None:
        clip_grads_with_norm_(trained, learner.max_grad_norm, norm)
    if not scaler.is_enabled():
        learner.watch.guard(optimizer)
    scaler.step(optimizer)
    scaler.update()
    learner.method.after_step(done.output)
    if learner.teacher is not None:
        # Not its buffers: the teacher's batch norms have running moments of their own.
        _follow(learner.teacher.parameters(), learner.network.parameters(), learner.method.momentum)
    if learner.average is not None:
        average, network = learner.average.state_dict(), learner.network.state_dict()
        _follow(average.values(), network.values(), learner.ema)
    return done


@torch.no_grad()
def _follow(slow: Iterable[Tensor], fast: Iterable[Tensor], momentum: float | None) -> None:
    """Moves tensors towards others by 1 - momentum. Whole numbers, such as counters, stay."""
    assert momentum is not None
    mine, others = ([x for x in tensors if x.is_floating_point()] for tensors in (slow, fast))
    torch._foreach_lerp_(mine, others, 1 - momentum)
