"""How the heads' losses are weighed against each other: the third choice of a method."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

# Beyond these a weight exp(-s) is below 0.0025 or above 400: nothing is learned any more.
LOG_VARIANCE_BOUND = 6.0


class Weighted(NamedTuple):
    """The objective, and what is tracked beside it: scalars by task, detached."""

    objective: Tensor
    weight_by_task: dict[str, Tensor]


class Weighting(nn.Module, ABC):
    """Combines task losses into one objective. Its parameters are never decayed."""

    @abstractmethod
    def forward(self, loss_by_task: Mapping[str, Tensor]) -> Weighted:
        """The scalar to minimise, from each task's scalar loss in nats."""

    def sigma_by_task(self) -> dict[str, Tensor]:
        """exp(s/2) of each task that has a learned log variance s; empty without one."""
        return {}

    def clamp(self) -> None:
        """Bring parameters back into their bounds; called after each optimizer step."""


class EqualWeights(Weighting):
    """The plain sum: CCN, MSCon-s, MTCon-s (METHODS 3, 4)."""

    def forward(self, loss_by_task: Mapping[str, Tensor]) -> Weighted:
        ones = {t: torch.ones_like(loss.detach()) for t, loss in loss_by_task.items()}
        return Weighted(torch.stack(list(loss_by_task.values())).sum(), ones)


class FixedWeights(Weighting):
    """The sum with a given weight for each loss, by name."""

    def __init__(self, weight_by_name: Mapping[str, float]) -> None:
        super().__init__()
        self.weight_by_name = dict(weight_by_name)

    def forward(self, loss_by_task: Mapping[str, Tensor]) -> Weighted:
        weights = {
            name: torch.full_like(loss.detach(), self.weight_by_name[name])
            for name, loss in loss_by_task.items()
        }
        terms = [weights[name] * loss for name, loss in loss_by_task.items()]
        return Weighted(torch.stack(terms).sum(), weights)


class LearnedVariance(Weighting):
    """sum over tasks of exp(-s) L + s, with s = log sigma^2 learned per task (METHODS 5.1).

    The mean-reduced L is required: with a sum over anchors s overshoots so far that the encoder
    gets no gradient for hundreds of steps (METHODS 5.5). For a fixed L the optimum is
    sigma^2 = L.

    normalise=True divides the applied weights by their mean (detached), so that learning s
    changes the balance of the tasks but not the size of the encoder's step: the plain form
    divides that step by about five, and a comparison with equal weights would measure it. s
    itself is then learned as in the plain form: its gradient stays 1 - exp(-s) L.
    """

    def __init__(self, tasks: tuple[str, ...], *, normalise: bool = False) -> None:
        super().__init__()
        self.normalise = normalise
        self.tasks = tasks
        # One vector, not a parameter per name: a task may be called "type" or "heel.height".
        self.log_variance = nn.Parameter(torch.zeros(len(tasks)))

    def forward(self, loss_by_task: Mapping[str, Tensor]) -> Weighted:
        s_T = self.log_variance
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        weight_T = torch.exp(-s_T)
        if self.normalise:
            applied_T = weight_T.detach() / weight_T.detach().mean()
            objective = (applied_T * loss_T).sum() + (weight_T * loss_T.detach() + s_T).sum()
        else:
            applied_T = weight_T.detach()
            objective = (weight_T * loss_T + s_T).sum()
        return Weighted(objective, dict(zip(self.tasks, applied_T, strict=True)))

    def sigma_by_task(self) -> dict[str, Tensor]:
        sigma_T = torch.exp(self.log_variance.detach() / 2)
        return dict(zip(self.tasks, sigma_T, strict=True))

    @torch.no_grad()
    def clamp(self) -> None:
        self.log_variance.clamp_(-LOG_VARIANCE_BOUND, LOG_VARIANCE_BOUND)
