"""One update: this rank's views, everybody's embeddings, the losses, a finite gradient."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import Optimizer

from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples, epoch_order, step_generator
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.errors import DivergedError, SpecError
from mtcon_ray.methods import Method
from mtcon_ray.models.network import Network
from mtcon_ray.training.device import ImageFeed
from mtcon_ray.training.distributed import Ranks, average_gradients, gather_rows
from mtcon_ray.training.optimizer import set_lr


class Batches:
    """The global batches of a training by step; each rank makes the views of its own items.

    A batch is a pure function of seed and step: examples from the epoch's permutation, whose
    last incomplete batch is dropped, views from the step's generator. Raises SpecError if there
    is no whole batch.
    """

    def __init__(
        self,
        dataset: Dataset,
        examples: Examples,
        views: ViewsSpec,
        *,
        batch_size: int,
        seed: int,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.views = views
        self.batch_size = batch_size
        self.seed = seed
        self.ranks = ranks
        self._examples = examples
        self.steps_per_epoch = len(examples) // batch_size
        if self.steps_per_epoch == 0:
            raise SpecError(
                f"train.batch_size must be at most the number of training examples "
                f"({len(examples)}), got {batch_size}"
            )
        self._source_size = dataset.images.shape[1]
        self._feed = ImageFeed(dataset.images, np.unique(examples.rows_EP), device)
        table = dataset.table
        numbers = {
            task: table.standardised(task) for task in dataset.tasks if task in table.continuous
        }
        self._labels, self._sets, self._numbers = (
            {
                task: torch.from_numpy(column[task]).to(device)
                for task in dataset.tasks
                if task in column
            }
            for column in (table.labels, table.multi_hot, numbers)
        )
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0, dtype=np.int64))

    def __call__(self, step: int) -> tuple[Tensor, Batch]:
        """This rank's views x_NCHW and the labels of the whole global batch.

        Labels are those of an example's first picture.
        """
        chosen = self._chosen(step)
        rows_BP = self._examples.rows_EP[chosen]
        share = self.ranks.share(len(rows_BP))
        V = self._examples.views * rows_BP.shape[1]
        parameters = draw_parameters(
            len(rows_BP) * V, self._source_size, self.views, step_generator(self.seed, step)
        ).rows(slice(share.start * V, share.stop * V))
        x_NCHW = make_views(self._feed(rows_BP[share].reshape(-1)), parameters, self.views)
        return x_NCHW, self._batch(chosen, rows_BP[:, 0], x_NCHW.device)

    def _batch(self, chosen: np.ndarray, rows: np.ndarray, device: torch.device) -> Batch:
        rows_B = torch.from_numpy(rows).to(device)
        labels, sets, numbers = (
            {task: values_N[rows_B] for task, values_N in column.items()}
            for column in (self._labels, self._sets, self._numbers)
        )
        condition_E = self._examples.condition_E
        condition = None if condition_E is None else torch.from_numpy(condition_E[chosen])
        return Batch(
            labels,
            len(rows),
            sets,
            {task: values_B.float() for task, values_B in numbers.items()},
            condition if condition is None else condition.to(device),
        )

    def seed_of(self, step: int) -> int:
        """A seed for what is random in the network, another one on each rank."""
        return (step_generator(self.seed, step).initial_seed() + self.ranks.rank) % 2**64

    def _chosen(self, step: int) -> np.ndarray:
        """Indices of the step's examples."""
        epoch, i = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            every = np.arange(len(self._examples))
            self._order = (epoch, epoch_order(every, self.seed, epoch))
        return self._order[1][i * self.batch_size : (i + 1) * self.batch_size]


@dataclass(frozen=True)
class Learner:
    """What an update changes, and how it is computed.

    `forward` is the network or DDP around it; `teacher` the copy that the method's momentum
    asks for.
    """

    network: Network
    forward: nn.Module
    method: Method
    optimizer: Optimizer
    ranks: Ranks
    autocast_dtype: torch.dtype | None = None
    max_grad_norm: float | None = None
    teacher: Network | None = None


@dataclass(frozen=True)
class Update:
    """Scalars of one update, detached and left on the device; weight and sigma as applied."""

    objective: Tensor
    loss_by_head: dict[str, Tensor]
    weight_by_head: dict[str, Tensor]
    sigma_by_task: dict[str, Tensor]
    gauges: dict[str, Tensor]


@dataclass
class Tally:
    """Sums over the steps of an epoch that is under way; tensors stay on the device."""

    num_steps: int = 0
    seconds: float = 0.0
    losses: Tensor | None = None  # float64 [1 + heads]: objective, then each head's loss

    def add(self, done: Update) -> None:
        """Count one update."""
        losses = torch.stack([done.objective, *done.loss_by_head.values()]).double()
        self.losses = losses if self.losses is None else self.losses + losses
        self.num_steps += 1

    def means(self) -> list[float]:
        """Objective and each head's loss, averaged over the steps; waits for the device."""
        assert self.losses is not None
        means: list[float] = (self.losses / self.num_steps).tolist()
        return means


def embed(learner: Learner, x_NCHW: Tensor, num_examples: int) -> dict[str, Tensor]:
    """Each head's rows z_BVD of the whole global batch, from this rank's views.

    With a teacher, z_BVD is [query | key] along its last axis.
    """
    device, dtype = x_NCHW.device.type, learner.autocast_dtype
    with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        z_by_head: dict[str, Tensor] = learner.forward(x_NCHW)
        if learner.teacher is not None:
            with torch.no_grad():
                keys = learner.teacher(x_NCHW)
            z_by_head = {h: torch.cat([z_ND, keys[h]], dim=1) for h, z_ND in z_by_head.items()}
    widths = [z_ND.shape[1] for z_ND in z_by_head.values()]
    # All heads in one exchange: its latency, not its bytes, is what counts.
    z_all = gather_rows(torch.cat(list(z_by_head.values()), dim=1), learner.ranks)
    parts = z_all.unflatten(0, (num_examples, -1)).split(widths, dim=2)
    return dict(zip(z_by_head, parts, strict=True))


def compute_gradients(learner: Learner, x_NCHW: Tensor, batch: Batch) -> Update:
    """Gradients of the one global loss in every `.grad`, the same on every rank."""
    loss_by_head = learner.method(embed(learner, x_NCHW, batch.num_items), batch)
    weighting = learner.method.weighting
    sigma_by_task = weighting.sigma_by_task()
    objective, weight_by_head = weighting(loss_by_head, learner.method.ranges)
    learner.optimizer.zero_grad(set_to_none=True)
    objective.backward()
    average_gradients(learner.method, learner.ranks)
    losses = {head: loss.detach() for head, loss in loss_by_head.items()}
    gauges = learner.method.gauges()
    return Update(objective.detach(), losses, weight_by_head, sigma_by_task, gauges)


def update(
    learner: Learner, x_NCHW: Tensor, batch: Batch, *, lr: float, step: int, num_steps: int
) -> Update:
    """One optimizer step at this rate, the step'th of num_steps, counted from 0.

    Raises DivergedError before a parameter changes, so that the last checkpoint stays good.
    """
    learner.network.progress = learner.method.progress = step / num_steps
    done = compute_gradients(learner, x_NCHW, batch)
    trained = [p for g in learner.optimizer.param_groups for p in g["params"] if p.grad is not None]
    norm = get_total_norm([p.grad for p in trained])
    # Waits for the device once a step: the price of a clean stop.
    if not torch.isfinite(norm + done.objective):
        losses = ", ".join(f"{h} {v.item():.4g}" for h, v in done.loss_by_head.items())
        raise DivergedError(
            f"gradient and loss must be finite, got norm {norm.item():.4g} at step {step + 1} "
            f"with lr {lr:.4g} and losses {losses}; lower train.lr or lengthen "
            "train.warmup_epochs"
        )
    if learner.max_grad_norm is not None:
        clip_grads_with_norm_(trained, learner.max_grad_norm, norm)
    set_lr(learner.optimizer, lr, learner.method.lr_scales())
    learner.optimizer.step()
    learner.method.after_step()
    if learner.teacher is not None:
        _follow(learner.teacher, learner.network, learner.method.momentum)
    return done


@torch.no_grad()
def _follow(teacher: Network, network: Network, momentum: float | None) -> None:
    """Move the teacher's parameters towards the network's; its batch-norm moments are its own."""
    assert momentum is not None
    pairs = zip(teacher.parameters(), network.parameters(), strict=True)
    for slow, fast in pairs:
        slow.lerp_(fast.detach(), 1 - momentum)
