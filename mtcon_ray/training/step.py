"""One update: this rank's views, everybody's embeddings, the losses, a finite gradient."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.optim import SGD

from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import epoch_order, step_generator
from mtcon_ray.data.views import ViewsSpec, draw_parameters, make_views
from mtcon_ray.errors import DivergedError, SpecError
from mtcon_ray.methods import Method
from mtcon_ray.models.network import Network
from mtcon_ray.training.device import ImageFeed
from mtcon_ray.training.distributed import Ranks, average_gradients, gather_rows
from mtcon_ray.training.optimizer import set_lr


class Batches:
    """The global batches of a training by step; each rank makes the views of its own items.

    A batch is a pure function of seed and step: items from the epoch's permutation of the
    training split, whose last incomplete batch is dropped, views from the step's generator.
    Raises SpecError if the training split holds no whole batch.
    """

    def __init__(
        self,
        dataset: Dataset,
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
        self._rows = dataset.table.rows("train")
        self.steps_per_epoch = len(self._rows) // batch_size
        if self.steps_per_epoch == 0:
            raise SpecError(
                f"train.batch_size must be at most the number of training items "
                f"({len(self._rows)}), got {batch_size}"
            )
        self._source_size = dataset.images.shape[1]
        self._feed = ImageFeed(dataset.images, self._rows, device)
        self._labels = {
            task: torch.from_numpy(dataset.table.labels[task]).to(device) for task in dataset.tasks
        }
        self._order: tuple[int, np.ndarray] = (-1, self._rows)

    def __call__(self, step: int) -> tuple[Tensor, Batch]:
        """This rank's views x_NCHW and the labels of the whole global batch."""
        rows = self._rows_of(step)
        share = self.ranks.share(len(rows))
        V = self.views.num_views
        parameters = draw_parameters(
            len(rows) * V, self._source_size, self.views, step_generator(self.seed, step)
        ).rows(slice(share.start * V, share.stop * V))
        x_NCHW = make_views(self._feed(rows[share]), parameters, self.views)
        rows_B = torch.from_numpy(rows).to(x_NCHW.device)
        labels = {task: labels_N[rows_B] for task, labels_N in self._labels.items()}
        return x_NCHW, Batch(labels, len(rows))

    def seed_of(self, step: int) -> int:
        """A seed for what is random in the network, another one on each rank."""
        return (step_generator(self.seed, step).initial_seed() + self.ranks.rank) % 2**64

    def _rows_of(self, step: int) -> np.ndarray:
        epoch, i = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = (epoch, epoch_order(self._rows, self.seed, epoch))
        return self._order[1][i * self.batch_size : (i + 1) * self.batch_size]


@dataclass(frozen=True)
class Learner:
    """What an update changes, and how it is computed. `forward` is the network or DDP around it."""

    network: Network
    forward: nn.Module
    method: Method
    optimizer: SGD
    ranks: Ranks
    autocast_dtype: torch.dtype | None = None
    max_grad_norm: float | None = None


@dataclass(frozen=True)
class Update:
    """Scalars of one update, detached and left on the device; weight and sigma as applied."""

    objective: Tensor
    loss_by_head: dict[str, Tensor]
    weight_by_head: dict[str, Tensor]
    sigma_by_task: dict[str, Tensor]


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


def embed(learner: Learner, x_NCHW: Tensor, num_items: int) -> dict[str, Tensor]:
    """Each head's unit rows z_BVD of the whole global batch, from this rank's views."""
    with torch.autocast(
        x_NCHW.device.type,
        dtype=learner.autocast_dtype,
        enabled=learner.autocast_dtype is not None,
    ):
        z_by_head: dict[str, Tensor] = learner.forward(x_NCHW)
    widths = [z_ND.shape[1] for z_ND in z_by_head.values()]
    # All heads in one exchange: its latency, not its bytes, is what counts.
    z_all = gather_rows(torch.cat(list(z_by_head.values()), dim=1), learner.ranks)
    parts = z_all.unflatten(0, (num_items, -1)).split(widths, dim=2)
    return dict(zip(z_by_head, parts, strict=True))


def compute_gradients(learner: Learner, x_NCHW: Tensor, batch: Batch) -> Update:
    """Gradients of the one global loss in every `.grad`, the same on every rank."""
    loss_by_head = learner.method(embed(learner, x_NCHW, batch.num_items), batch)
    weighting = learner.method.weighting
    sigma_by_task = weighting.sigma_by_task()
    objective, weight_by_head = weighting(loss_by_head)
    learner.optimizer.zero_grad(set_to_none=True)
    objective.backward()
    average_gradients(learner.method, learner.ranks)
    losses = {head: loss.detach() for head, loss in loss_by_head.items()}
    return Update(objective.detach(), losses, weight_by_head, sigma_by_task)


def update(learner: Learner, x_NCHW: Tensor, batch: Batch, *, lr: float, step: int) -> Update:
    """One optimizer step at this rate.

    Raises DivergedError before a parameter changes, so that the last checkpoint stays good.
    """
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
    set_lr(learner.optimizer, lr)
    learner.optimizer.step()
    learner.method.weighting.clamp()
    return done
