"""How the heads' losses are weighed against each other: the third choice of a method."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from mtcon_ray.losses.contrastive import Range

# Beyond these a weight exp(-s) is below 0.0025 or above 400: nothing is learned any more.
LOG_VARIANCE_BOUND = 6.0
NO_RANGES: Mapping[str, Range] = MappingProxyType({})


class Weighted(NamedTuple):
    """The objective, and what is tracked beside it: scalars by task, detached."""

    objective: Tensor
    weight_by_task: dict[str, Tensor]


class Weighting(nn.Module, ABC):
    """Combines task losses into one objective. Its parameters are never decayed.

    With `needs_ranges` it is called with the range of each loss.
    """

    needs_ranges: ClassVar[bool] = False

    @abstractmethod
    def forward(
        self, loss_by_task: Mapping[str, Tensor], range_by_task: Mapping[str, Range] = NO_RANGES
    ) -> Weighted:
        """The scalar to minimise, from each task's scalar loss in nats."""

    def sigma_by_task(self) -> dict[str, Tensor]:
        """exp(s/2) of each task that has a learned log variance s; empty without one."""
        return {}

    def clamp(self) -> None:
        """Bring parameters back into their bounds; called after each optimizer step."""


class EqualWeights(Weighting):
    """The plain sum: CCN, MSCon-s, MTCon-s (METHODS 3, 4)."""

    def forward(
        self, loss_by_task: Mapping[str, Tensor], range_by_task: Mapping[str, Range] = NO_RANGES
    ) -> Weighted:
        ones = {t: torch.ones_like(loss.detach()) for t, loss in loss_by_task.items()}
        return Weighted(torch.stack(list(loss_by_task.values())).sum(), ones)


class FixedWeights(Weighting):
    """The sum with a given weight for each loss, by name."""

    def __init__(self, weight_by_name: Mapping[str, float]) -> None:
        super().__init__()
        self.weight_by_name = dict(weight_by_name)

    def forward(
        self, loss_by_task: Mapping[str, Tensor], range_by_task: Mapping[str, Range] = NO_RANGES
    ) -> Weighted:
        weights = {
            name: torch.full_like(loss.detach(), self.weight_by_name[name])
            for name, loss in loss_by_task.items()
        }
        terms = [weights[name] * loss for name, loss in loss_by_task.items()]
        return Weighted(torch.stack(terms).sum(), weights)


class LearnedVariance(Weighting):
    """sum over tasks of exp(-s) L + penalty s, with s = log sigma^2 learned per task.

    Penalty 1 is MTCon's objective, 1/2 Kendall's for cross-entropy (arXiv:1705.07115, eq. 10). The
    mean-reduced L is required: with a sum over anchors s overshoots so far that the encoder gets
    no gradient for hundreds of steps. For a fixed L the optimum is
    sigma^2 = L / penalty; where L can reach 0 only `clamp` keeps exp(-s) finite. The papers leave
    s free; here it stays within LOG_VARIANCE_BOUND. The optimizer gives s the learning rate of the
    encoder, by which it overshoots in trainings of a few dozen steps at a high rate.

    normalise=True divides the applied weights by their mean (detached), so that learning s
    changes the balance of the tasks but not the size of the encoder's step: the plain form
    divides that step by about five, and a comparison with equal weights would measure it. s
    itself is then learned as in the plain form: its gradient stays penalty - exp(-s) L.
    """

    def __init__(
        self, tasks: tuple[str, ...], *, normalise: bool = False, penalty: float = 1.0
    ) -> None:
        super().__init__()
        self.penalty = penalty
        self.normalise = normalise
        self.tasks = tasks
        # One vector, not a parameter per name: a task may be called "type" or "heel.height".
        self.log_variance = nn.Parameter(torch.zeros(len(tasks)))

    def forward(
        self, loss_by_task: Mapping[str, Tensor], range_by_task: Mapping[str, Range] = NO_RANGES
    ) -> Weighted:
        s_T = self.log_variance
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        weight_T = torch.exp(-s_T)
        penalty = self.penalty * s_T.sum()
        if self.normalise:
            applied_T = weight_T.detach() / weight_T.detach().mean()
            learn = (weight_T * loss_T.detach()).sum() + penalty
            # `learn` has a gradient on s alone: the objective that is shown is the encoder's.
            objective = (applied_T * loss_T).sum() + (learn - learn.detach())
        else:
            applied_T = weight_T.detach()
            objective = (weight_T * loss_T).sum() + penalty
        return Weighted(objective, dict(zip(self.tasks, applied_T, strict=True)))

    def sigma_by_task(self) -> dict[str, Tensor]:
        sigma_T = torch.exp(self.log_variance.detach() / 2)
        return dict(zip(self.tasks, sigma_T, strict=True))

    @torch.no_grad()
    def clamp(self) -> None:
        self.log_variance.clamp_(-LOG_VARIANCE_BOUND, LOG_VARIANCE_BOUND)


class LearnedTemperature(LearnedVariance):
    """sum over tasks of L(t sigma^2) + s: the variance divides the logits instead of the loss.

    Not the same function as LearnedVariance, and not what the papers optimise (METHODS 5.4). The
    method must divide its similarities by t times `factor`.
    """

    def factor(self, task: str) -> Tensor:
        """sigma^2 of a task, with gradient."""
        return torch.exp(self.log_variance[self.tasks.index(task)])

    def forward(
        self, loss_by_task: Mapping[str, Tensor], range_by_task: Mapping[str, Range] = NO_RANGES
    ) -> Weighted:
        ones = {t: torch.ones_like(loss.detach()) for t, loss in loss_by_task.items()}
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        return Weighted((loss_T + self.log_variance).sum(), ones)
