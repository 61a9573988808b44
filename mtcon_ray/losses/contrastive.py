"""The one expression under every contrastive method here (METHODS 0, 10.1).

    loss_i = -1/|P(i)| * sum over p in P(i) of
             w_ip [ z_i.z_p/t - log sum over a != i exp(z_i.z_a/t) ]

Anchors i run over all N = B * V rows, P(i) and the weights w come from a relation, t is the
temperature.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.losses.relations import Partners, Relation


class Range(NamedTuple):
    """Least and greatest value that a loss sensibly takes, detached scalars in nats.

    ceiling: all embeddings equal. floor: every partner on its anchor and the groups at equal
    distances from each other, the corners of a simplex. Both average over the anchors that the
    loss averages over, so they follow the batch's class balance.
    """

    floor: Tensor
    ceiling: Tensor


class Contrast(NamedTuple):
    """The loss of every anchor, and what is known of it without looking at embeddings; [N]."""

    loss_N: Tensor  # nats, 0 where an anchor has no partner
    partners: Partners
    temperature: float | Tensor

    def mean(self) -> Tensor:
        """Over anchors with a partner; 0 and differentiable if there is none."""
        return self.loss_N.sum() / (self.partners.count_N > 0).sum().clamp(min=1)

    @torch.no_grad()
    def range(self) -> Range:
        """What `mean` attains: floor and ceiling of this batch."""
        _, weight_N, count_N, num_groups = self.partners
        share_N = weight_N / count_N.clamp(min=1)
        others_N = (len(count_N) - 1) - count_N
        K = num_groups.clamp(min=2).to(weight_N.dtype)
        far = torch.exp(-K / (K - 1) / self.temperature)
        num_valid = (count_N > 0).sum().clamp(min=1)
        floor_N = torch.where(count_N > 0, share_N * (count_N + others_N * far).log(), 0.0)
        ceiling_N = torch.where(count_N > 0, share_N, 0.0) * torch.log(count_N + others_N)
        return Range(floor_N.sum() / num_valid, ceiling_N.sum() / num_valid)


def contrast(z_BVD: Tensor, relation: Relation, temperature: float | Tensor) -> Contrast:
    """Every anchor's loss; half precision is computed in float32, autocast is off.

    Raises ValueError for a temperature that is not positive, another shape than [B, V, D],
    and a single row, which has nobody to be compared with.
    """
    _check(z_BVD, temperature)
    with torch.autocast(z_BVD.device.type, enabled=False):
        z_BVD = z_BVD if z_BVD.dtype == torch.float64 else z_BVD.float()
        log_sum_N = _log_sum_of_others(z_BVD.flatten(0, 1), temperature)
        partners = relation.partners(z_BVD)
        similarity_N, weight_N, count_N, _ = partners
        loss_N = (weight_N * log_sum_N - similarity_N / temperature) / count_N.clamp(min=1)
        return Contrast(torch.where(count_N > 0, loss_N, 0.0), partners, temperature)


def contrastive(
    z_BVD: Tensor,
    relation: Relation,
    *,
    temperature: float | Tensor,
    reduction: str = "mean",
    average_over: str = "valid",
) -> Tensor:
    """Loss in nats per anchor: a scalar, or [B, V] with reduction="none".

    z_BVD holds unit rows. An anchor without a partner counts 0; it leaves the mean with
    average_over="valid" and stays in it with "all". If no anchor has a partner the loss is 0 and
    differentiable. The temperature may be a scalar tensor and then has a gradient.

    Raises ValueError as `contrast` does, and for unknown words.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if average_over not in ("valid", "all"):
        raise ValueError(f"average_over must be 'valid' or 'all', got {average_over!r}")
    found = contrast(z_BVD, relation, temperature)
    if reduction == "none":
        return found.loss_N.view(z_BVD.shape[:2])
    if reduction == "sum":
        return found.loss_N.sum()
    return found.mean() if average_over == "valid" else found.loss_N.mean()


def _log_sum_of_others(z_ND: Tensor, temperature: float | Tensor) -> Tensor:
    """For every row, the log of the sum over all other rows of exp(similarity / temperature)."""
    logits_NN = z_ND @ z_ND.T / temperature
    itself_NN = torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)
    return logits_NN.masked_fill(itself_NN, -torch.inf).logsumexp(dim=1)


def _check(z_BVD: Tensor, temperature: float | Tensor) -> None:
    if z_BVD.ndim != 3:
        raise ValueError(f"z must have shape [B, V, D], got {list(z_BVD.shape)}")
    if z_BVD.shape[0] * z_BVD.shape[1] < 2:
        raise ValueError(f"z must hold at least two rows, got shape {list(z_BVD.shape)}")
    # Of a tensor only the caller knows: looking would wait for the device.
    if not isinstance(temperature, Tensor) and not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive, got {temperature}")
