"""The one expression under every contrastive method here (METHODS 0, 10.1).

    loss_i = -1/|P(i)| * sum over p in P(i) of
             w_ip [ z_i.z_p/t - log sum over a != i exp(z_i.z_a/t) ]

Anchors i run over all N = B * V rows, P(i) and the weights w come from a relation, t is the
temperature.
"""

import torch
from torch import Tensor

from mtcon_ray.losses.relations import Relation


def contrastive(
    z_BVD: Tensor,
    relation: Relation,
    *,
    temperature: float | Tensor,
    reduction: str = "mean",
    average_over: str = "valid",
) -> Tensor:
    """Loss in nats per anchor: a scalar, or [B, V] with reduction="none".

    z_BVD holds unit rows; half precision is computed in float32. An anchor without a partner
    counts 0; it leaves the mean with average_over="valid" and stays in it with "all". If no
    anchor has a partner the loss is 0 and differentiable.

    The temperature may be a scalar tensor and then has a gradient.

    Raises ValueError for a temperature that is not positive, another shape than [B, V, D],
    and a single row, which has nobody to be compared with.
    """
    _check(z_BVD, temperature, reduction, average_over)
    B, V, _ = z_BVD.shape
    with torch.autocast(z_BVD.device.type, enabled=False):
        z_BVD = z_BVD if z_BVD.dtype == torch.float64 else z_BVD.float()
        log_sum_N = _log_sum_of_others(z_BVD.flatten(0, 1), temperature)
        similarity_N, weight_N, count_N = relation.partners(z_BVD)
        has_partner_N = count_N > 0
        loss_N = (weight_N * log_sum_N - similarity_N / temperature) / count_N.clamp(min=1)
        loss_N = torch.where(has_partner_N, loss_N, 0.0)
    if reduction == "none":
        return loss_N.view(B, V)
    if reduction == "sum":
        return loss_N.sum()
    return loss_N.sum() / (has_partner_N.sum().clamp(min=1) if average_over == "valid" else B * V)


def _log_sum_of_others(z_ND: Tensor, temperature: float | Tensor) -> Tensor:
    """For every row, the log of the sum over all other rows of exp(similarity / temperature)."""
    logits_NN = z_ND @ z_ND.T / temperature
    itself_NN = torch.eye(len(z_ND), dtype=torch.bool, device=z_ND.device)
    return logits_NN.masked_fill(itself_NN, -torch.inf).logsumexp(dim=1)


def _check(z_BVD: Tensor, temperature: float | Tensor, reduction: str, average_over: str) -> None:
    if z_BVD.ndim != 3:
        raise ValueError(f"z must have shape [B, V, D], got {list(z_BVD.shape)}")
    if z_BVD.shape[0] * z_BVD.shape[1] < 2:
        raise ValueError(f"z must hold at least two rows, got shape {list(z_BVD.shape)}")
    # Of a tensor only the caller knows: looking would wait for the device.
    if not isinstance(temperature, Tensor) and not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive, got {temperature}")
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if average_over not in ("valid", "all"):
        raise ValueError(f"average_over must be 'valid' or 'all', got {average_over!r}")
