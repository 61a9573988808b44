"""Weightings, which combine the losses of all heads into a single objective."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

# exp(-s) lies between 0.0025 and 403. Weights beyond would exclude a task, or all others.
LOG_VARIANCE_BOUND = 6.0
Losses = Mapping[str, Tensor]


class Weighted(NamedTuple):
    """The objective, and the weight of each task's loss in it, detached, for tracking."""

    objective: Tensor
    weight_by_task: dict[str, Tensor]


class Weighting(nn.Module, ABC):
    """Base of weightings, which combine task losses into a single objective.

    Parameters have no weight decay: it would pull sigma towards 1.
    """

    @abstractmethod
    def forward(self, loss_by_task: Losses) -> Weighted:
        """Returns the scalar to minimise, and the weights, from each task's scalar loss in nats."""

    def sigma_by_task(self) -> dict[str, Tensor]:
        """Returns exp(s/2) of each task if log variances s are learned, else an empty dict.

        Before training every s must be 0: MLflow shows sigma = 1 as the start.
        """
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

    def forward(self, loss_by_task: Losses) -> Weighted:
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
        # A vector, not a parameter per name: a task may be called "type" or "heel.height".
        self.log_variance = nn.Parameter(torch.zeros(len(tasks)))

    def forward(self, loss_by_task: Losses) -> Weighted:
        s_T = self.log_variance
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        weight_T = torch.exp(-s_T)
        applied_T = weight_T.detach()
        learned_T = weight_T * (loss_T.detach() if self.normalise else loss_T)
        objective = learned_T.sum() + self.penalty * penalty_terms(s_T, loss_T).sum()
        if self.normalise:
            applied_T = applied_T / applied_T.mean()
            # Here `objective` has a gradient for s alone. Its value is no loss: it is subtracted.
            objective = (applied_T * loss_T).sum() + (objective - objective.detach())
        return Weighted(objective, dict(zip(self.tasks, applied_T, strict=True)))

    def sigma_by_task(self) -> dict[str, Tensor]:
        return dict(zip(self.tasks, torch.exp(self.log_variance.detach() / 2), strict=True))

    @torch.no_grad()
    def clamp(self) -> None:
        self.log_variance.clamp_(-LOG_VARIANCE_BOUND, LOG_VARIANCE_BOUND)


class LearnedTemperature(LearnedVariance):
    """The sum over tasks of L(t sigma^2) + s: sigma^2 divides the logits instead of the loss.

    The derivation of MTCon starts from this form, but the paper optimises LearnedVariance, another
    function. The method must multiply its temperature t by `factor`. A task without a label in the
    batch has neither term, as in LearnedVariance.
    """

    def factor(self, task: str) -> Tensor:
        """Returns sigma^2 of a task, a scalar with gradient."""
        return torch.exp(self.log_variance[self.tasks.index(task)])

    def forward(self, loss_by_task: Losses) -> Weighted:
        ones = {t: torch.ones_like(loss.detach()) for t, loss in loss_by_task.items()}
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        return Weighted((loss_T + penalty_terms(self.log_variance, loss_T)).sum(), ones)


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
