"""Weightings, which combine the losses of all heads into a single objective."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from mtcon_ray.losses.contrastive import Range

# exp(-s) lies between 0.0025 and 403. Weights beyond would exclude a task, or all others.
LOG_VARIANCE_BOUND = 6.0
# A range C - F of CalibratedVariance below this, in nats, is rounding: the batch has one class, so
# no negatives, or no label.
LEAST_RANGE = 1e-4
Losses = Mapping[str, Tensor]
Ranges = Mapping[str, Range]
NO_RANGES: Ranges = MappingProxyType({})


class Weighted(NamedTuple):
    """The objective, and the weight of each task's loss in it, detached, for tracking."""

    objective: Tensor
    weight_by_task: dict[str, Tensor]


class Weighting(nn.Module, ABC):
    """Base of weightings, which combine task losses into a single objective.

    Parameters have no weight decay: it would pull sigma towards 1. If `needs_ranges` is True,
    `forward` needs the range of each loss.
    """

    needs_ranges: ClassVar[bool] = False

    @abstractmethod
    def forward(self, loss_by_task: Losses, range_by_task: Ranges = NO_RANGES) -> Weighted:
        """Returns the scalar to minimise, and the weights, from each task's scalar loss in nats."""

    def sigma_by_task(self) -> dict[str, Tensor]:
        """Returns exp(s/2) of each task if log variances s are learned, else an empty dict."""
        return {}

    def clamp(self) -> None:
        """Clamps the parameters to their bounds. Called after each optimizer step."""


class FixedWeights(Weighting):
    """The sum of the losses with a fixed weight for each, by name. Without weights the plain sum.

    CCN and the unweighted variants of MSCon and MTCon use the plain sum.
    """

    def __init__(self, weight_by_name: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.weight_by_name = weight_by_name or {}

    def forward(self, loss_by_task: Losses, range_by_task: Ranges = NO_RANGES) -> Weighted:
        weights = {
            name: torch.full_like(loss.detach(), self.weight_by_name.get(name, 1.0))
            for name, loss in loss_by_task.items()
        }
        terms = [weights[name] * loss for name, loss in loss_by_task.items()]
        return Weighted(torch.stack(terms).sum(), weights)


class LearnedVariance(Weighting):
    """The sum over tasks of exp(-s) L + penalty * s, with s = log sigma^2 learned per task.

    penalty 1 is the objective of MSCon (Mu et al. 2023, arXiv:2307.02712) and of MTCon. penalty
    1/2 is as in Kendall et al. 2018, arXiv:1705.07115, eq. 10, for cross-entropy. For a fixed L the
    optimum is sigma^2 = L / penalty. If L approaches 0, as cross-entropy can, only `clamp` keeps
    exp(-s) finite. The papers leave s free. Here |s| is at most LOG_VARIANCE_BOUND. A task without
    a label in the batch has L = 0 and no penalty (see `penalty_terms`).

    L must be a mean over anchors. With a sum over 128 anchors, s overshoots, and the encoder gets
    no gradient for hundreds of steps. s has the learning rate of the encoder, so it overshoots
    also in short trainings (a few dozen steps) at a high rate.

    normalise=True divides the applied weights by their mean (detached): learning s then changes the
    balance of the tasks but not the size of the encoder's step. The plain form divides the step
    by about five, so a comparison with equal weights would compare step sizes. The gradient of s
    is penalty - exp(-s) L in both forms.
    """

    def __init__(
        self, tasks: tuple[str, ...], *, normalise: bool = False, penalty: float = 1.0
    ) -> None:
        super().__init__()
        self.tasks, self.normalise, self.penalty = tasks, normalise, penalty
        self.least = -LOG_VARIANCE_BOUND
        # A vector, not a parameter per name: a task may be called "type" or "heel.height".
        self.log_variance = nn.Parameter(torch.zeros(len(tasks)))

    def forward(self, loss_by_task: Losses, range_by_task: Ranges = NO_RANGES) -> Weighted:
        s_T = self.log_variance
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        weight_T = torch.exp(-s_T)
        penalty = self.penalty * penalty_terms(s_T, loss_T).sum()
        if self.normalise:
            learn = (weight_T * loss_T.detach()).sum() + penalty
            return self.balanced(loss_T, weight_T.detach(), learn)
        objective = (weight_T * loss_T).sum() + penalty
        return Weighted(objective, dict(zip(self.tasks, weight_T.detach(), strict=True)))

    def balanced(self, loss_T: Tensor, weight_T: Tensor, learn: Tensor) -> Weighted:
        """Returns the losses with weights of mean 1, and the gradient of `learn`, which is for s.

        All weights may be 0. The clamp then avoids 0 / 0.
        """
        applied_T = weight_T / weight_T.mean().clamp(min=torch.finfo(weight_T.dtype).tiny)
        # `learn` has a gradient for s alone. Subtracting its value leaves the encoder's objective.
        objective = (applied_T * loss_T).sum() + (learn - learn.detach())
        return Weighted(objective, dict(zip(self.tasks, applied_T, strict=True)))

    def sigma_by_task(self) -> dict[str, Tensor]:
        sigma_T = torch.exp(self.log_variance.detach() / 2)
        return dict(zip(self.tasks, sigma_T, strict=True))

    @torch.no_grad()
    def clamp(self) -> None:
        self.log_variance.clamp_(self.least, LOG_VARIANCE_BOUND)


class LearnedTemperature(LearnedVariance):
    """The sum over tasks of L(t sigma^2) + s: sigma^2 divides the logits instead of the loss.

    The derivation of MTCon starts from this form, but the paper optimises LearnedVariance, another
    function. The method must multiply its temperature t by `factor`. A task without a label in the
    batch has neither term, as in LearnedVariance.
    """

    def factor(self, task: str) -> Tensor:
        """Returns sigma^2 of a task, a scalar with gradient."""
        return torch.exp(self.log_variance[self.tasks.index(task)])

    def forward(self, loss_by_task: Losses, range_by_task: Ranges = NO_RANGES) -> Weighted:
        ones = {t: torch.ones_like(loss.detach()) for t, loss in loss_by_task.items()}
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        return Weighted((loss_T + penalty_terms(self.log_variance, loss_T)).sum(), ones)


class CalibratedVariance(LearnedVariance):
    """Learned task weights from the excess of each loss over its floor, not from the loss itself.

    MTCon learns sigma^2 = L, so a task has weight 1/L. A supervised contrastive loss is never near
    0, however: with all positives equal to their anchor it is still about log|P|. The loss of equal
    embeddings is log(M - 1) for M rows. With M = 128 and K balanced classes, L is between 3.20 and
    4.84 for K = 5, and between 4.14 and 4.84 for K = 2. For K = 5, pure noise thus has at least
    1/1.5 of the weight of a perfectly learned task, and a clean task of two classes always has less
    weight than a clean task of many. Class balance and batch size determine the weights. How well a
    task is learned hardly matters.

    Here the excess over the floor F is measured in units of the attainable range,

        e = (L - F) / (C - F),    F = mean share_i (H(q_i) + log(1 + |N_i| / |P_i| exp(-g / t))),
                                  C = mean share_i log(M - 1),

    where q_i are the weights of an anchor's positives divided by their sum, H is the entropy,
    share_i is the mean weight of its positives, |N_i| the number of its negatives and t the
    temperature. `contrastive.Range` derives F. For K classes share_i is 1, H(q_i) is log|P_i| and g
    is K / (K - 1). F is attained when each class is a corner of a simplex. It is a lower bound of L
    if classes have equal sizes and all rows of the batch are labelled. Otherwise L can fall below F
    at a warm temperature, if unlabelled rows or small classes have a cosine below 1 - g with
    another class. e is then below 0 and s falls to its bound, as for a solved task. For soft
    positives (label sets, numbers) g is 2 and F is always a lower bound. C is the loss of equal
    embeddings.

    e is 0 for a solved task and 1 for an unlearned task. Both values are independent of the number
    of classes, their balance, the batch size and the temperature. The objective of MTCon is then
    used with e in place of L: sum over tasks of exp(-s) e + s, with optimum sigma^2 = e. A task of
    noise keeps e = 1. e of a clean task falls and its weight rises, by a factor of 1/least_excess
    at most.

    The bound least_excess is needed because e near 1 means noise or a task not learned yet, and the
    loss cannot distinguish the two. Without a bound the encoder is trained almost only on the first
    learned task. docs/results/photographs.md has measurements.

    Learns s by the sum over tasks of exp(-s) e + s. The encoder gets weights of mean 1.

    The weight of a task's loss L is exp(-s) / (C - F), the derivative of exp(-s) e, divided by the
    mean over tasks: learning s changes the balance of the tasks but not the size of the encoder's
    step. If a batch has a single class of a task, the task has weight 0, and its s gets no
    gradient. s is clamped to at least log(least_excess), with least_excess in (0, 1]. At 1 all
    tasks weigh the same on e.
    """

    needs_ranges = True

    def __init__(self, tasks: tuple[str, ...], *, least_excess: float = 0.5) -> None:
        super().__init__(tasks, normalise=True)
        self.least = math.log(least_excess)

    def forward(self, loss_by_task: Losses, range_by_task: Ranges = NO_RANGES) -> Weighted:
        s_T = self.log_variance
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        floor_T = torch.stack([range_by_task[t].floor for t in self.tasks]).to(loss_T.dtype)
        ceiling_T = torch.stack([range_by_task[t].ceiling for t in self.tasks]).to(loss_T.dtype)
        tells_T = ceiling_T - floor_T > LEAST_RANGE
        width_T = (ceiling_T - floor_T).clamp(min=LEAST_RANGE)
        excess_T = (loss_T.detach() - floor_T) / width_T
        learn = torch.where(tells_T, torch.exp(-s_T) * excess_T + s_T, 0.0).sum()
        weight_T = torch.where(tells_T, torch.exp(-s_T.detach()) / width_T, 0.0)
        return self.balanced(loss_T, weight_T, learn)


def penalty_terms(s_T: Tensor, loss_T: Tensor) -> Tensor:
    """Returns each task's term s of the objective, [T], and 0 where its loss is exactly 0.

    s_T are the log variances and loss_T the losses, [T] each. A task without a label in the batch
    has the placeholder 0 as its loss. Its s must get no gradient: the penalty alone would lower s
    in each such step, and sigma^2 would settle at the share of steps with labels times L.
    """
    # The loss of a task with labels can round to 0 too, as the cross-entropy of large margins does.
    # The optimum is then s = -inf. It is right to leave s where it is: exp(-s) multiplies a loss
    # without a gradient for the encoder, and another step needs no weight at the bound.
    # Not `loss_T > 0`: a contrastive loss near 0, of a task with labels, can round below 0.
    return torch.where(loss_T != 0, s_T, 0.0)
