"""Learned task weights from the excess of each loss over its floor, not from the loss itself.

MTCon learns sigma^2 = L, so a task has weight 1/L. A supervised contrastive loss is never near 0,
however: with all positives equal to their anchor it is still about log|P|. The loss of equal
embeddings is log(M - 1) for M rows. With M = 128 and K balanced classes, L is between 3.20 and
4.84 for K = 5, and between 4.14 and 4.84 for K = 2. For K = 5, pure noise thus has at least 1/1.5
of the weight of a perfectly learned task, and a clean task of two classes always has less weight
than a clean task of many. Class balance and batch size determine the weights. How well a task is
learned hardly matters.

Here the excess over the floor F is measured in units of the attainable range,

    e = (L - F) / (C - F),    F = mean share_i (H(q_i) + log(1 + |N_i| / |P_i| exp(-g / t))),
                              C = mean share_i log(M - 1),

where q_i are the weights of an anchor's positives divided by their sum, H is the entropy, share_i
is the mean weight of its positives, |N_i| the number of its negatives and t the temperature.
`contrastive.Range` derives F. For K classes share_i is 1, H(q_i) is log|P_i| and g is K / (K - 1).
F is attained when each class is a corner of a simplex. It is a lower bound of L if classes have
equal sizes and all rows of the batch are labelled. Otherwise L can fall below F at a warm
temperature, if unlabelled rows or small classes have a cosine below 1 - g with another class.
e is then below 0 and s falls to its bound, as for a solved task. For soft positives (label
sets, numbers) g is 2 and F is always a lower bound. C is the loss of equal embeddings.

e is 0 for a solved task and 1 for an unlearned task. Both values are independent of the number of
classes, their balance, the batch size and the temperature. The objective of MTCon is then used
with e in place of L: sum over tasks of exp(-s) e + s, with optimum sigma^2 = e. A task of noise
keeps e = 1. e of a clean task falls and its weight rises, by a factor of 1/least_excess at most.

The bound least_excess is needed because e near 1 means noise or a task not learned yet, and the
loss cannot distinguish the two. Without a bound the encoder is trained almost only on the first
learned task. docs/results/photographs.md has measurements.
"""

import math

import torch

from mtcon_ray.losses import weighting

# A range C - F below this, in nats, is rounding: the batch has one class, so no negatives, or no
# label.
LEAST_RANGE = 1e-4


class CalibratedVariance(weighting.LearnedVariance):
    """Learns s by the sum over tasks of exp(-s) e + s. The encoder gets weights of mean 1.

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

    def forward(
        self, loss_by_task: weighting.Losses, range_by_task: weighting.Ranges = weighting.NO_RANGES
    ) -> weighting.Weighted:
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
