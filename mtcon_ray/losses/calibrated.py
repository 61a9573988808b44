"""Task weights learned from what a loss can still gain, not from its size.

MTCon learns sigma^2 = L, so a task weighs 1/L. But a supervised contrastive loss never comes near
0: with all positives on their anchor it still is log|P|, and at worst, all embeddings equal, it is
log(M - 1) for M rows. With M = 128 and K balanced classes that leaves L between
3.20 and 4.84 for K = 5, and between 4.14 and 4.84 for K = 2: a task of pure noise is weighed
1.5 times less than a perfectly learned one at most, and a clean task of two classes is always
weighed less than a clean one of many. Class balance and batch size decide the
weights, and how well a task is learned hardly does.

So the excess over the floor is measured in units of its attainable range,

    e = (L - F) / (C - F),    F = mean share_i (H(q_i) + log(1 + |N_i| / |P_i| exp(-g / t))),
                              C = mean share_i log(M - 1),

where q_i are the weights of an anchor's positives divided by their sum, H is the entropy, share_i
is the mean weight of its positives and t the temperature; `contrastive.Range` derives F. For K
classes share_i is 1, H(q_i) is log|P_i| and g is K / (K - 1): F is attained when classes are single
points at the corners of a simplex. For graded positives (label sets, numbers) g is 2 and F is a
lower bound. C is the loss when nothing is told apart. e is 0 for a
task that is solved and 1 for one of which nothing is learned, whatever its number of classes,
their balance, the batch and the temperature. The likelihood argument behind MTCon is then made
for e instead of L: sum over tasks of exp(-s) e + s, whose optimum is sigma^2 = e. A task of noise
keeps e = 1; clean ones fall, and weigh more, by 1/least_excess at most.

The bound matters: an e near 1 says that a task is noise or that it is not learned yet, and the
loss cannot tell which. Without a bound the task that is learned first takes the whole encoder;
experiments/README.md has what was measured.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from mtcon_ray.losses.contrastive import Range
from mtcon_ray.losses.weighting import LOG_VARIANCE_BOUND, NO_RANGES, LearnedVariance, Weighted

# A range this narrow, in nats, means that a batch holds one class only: nothing to be told apart.
LEAST_RANGE = 1e-4


class CalibratedVariance(LearnedVariance):
    """sum over tasks of exp(-s) e + s for s; weights on L of mean 1 for the encoder.

    A task's loss L is weighed by exp(-s) / (C - F), its gradient on e, scaled over the tasks to
    mean 1 so that learning s changes the balance but not the size of the encoder's step. A task
    whose batch has nothing to be told apart weighs 0 and leaves its s alone. An excess below
    least_excess, in (0, 1], counts as that: 1 makes all tasks weigh the same on e.
    """

    needs_ranges = True

    def __init__(self, tasks: tuple[str, ...], *, least_excess: float = 0.5) -> None:
        super().__init__(tasks, normalise=True)
        assert 0 < least_excess <= 1, least_excess
        self.least_excess = least_excess

    def forward(
        self, loss_by_task: Mapping[str, Tensor], range_by_task: Mapping[str, Range] = NO_RANGES
    ) -> Weighted:
        s_T = self.log_variance
        loss_T = torch.stack([loss_by_task[t] for t in self.tasks])
        floor_T = torch.stack([range_by_task[t].floor for t in self.tasks]).to(loss_T.dtype)
        ceiling_T = torch.stack([range_by_task[t].ceiling for t in self.tasks]).to(loss_T.dtype)
        width_T = ceiling_T - floor_T
        tells_T = width_T > LEAST_RANGE
        width_T = width_T.clamp(min=LEAST_RANGE)
        excess_T = (loss_T.detach() - floor_T) / width_T
        learn = torch.where(tells_T, torch.exp(-s_T) * excess_T + s_T, 0.0).sum()
        weight_T = torch.where(tells_T, torch.exp(-s_T.detach()) / width_T, 0.0)
        applied_T = weight_T / weight_T.mean().clamp(min=torch.finfo(weight_T.dtype).tiny)
        balanced = (applied_T * loss_T).sum()
        # `learn` has a gradient on s alone: the objective that is shown is the encoder's.
        objective = balanced + (learn - learn.detach())
        return Weighted(objective, dict(zip(self.tasks, applied_T, strict=True)))

    @torch.no_grad()
    def clamp(self) -> None:
        self.log_variance.clamp_(min=math.log(self.least_excess), max=LOG_VARIANCE_BOUND)
