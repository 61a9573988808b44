"""The expression of every contrastive method here (Khosla et al. 2020, arXiv:2004.11362, eq. 2).

    loss_i = -1/|P(i)| * sum over p in P(i) of
             w_ip [ z_i.z_p/t - log sum over a != i exp(z_i.z_a/t) ]

Anchors i run over all N = B * V rows. The positives P(i) and their weights w come from a relation
(w = 1 in the paper), t is the temperature. Small batches are computed by `small_batch`, large ones
in linear memory by `tiled_logsumexp`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtcon_ray.losses import small_batch
from mtcon_ray.losses.numeric import at_least_float32
from mtcon_ray.losses.positives import Degrees, EqualLabel, OwnView, Relation
from mtcon_ray.losses.tiled_logsumexp import log_sums, rows_gradient


def contrast(
    z_by_space: Sequence[Tensor],
    relation: Relation,
    temperature: float | Tensor,
    reduction: str = "mean",
) -> Tensor:
    """Returns the loss in each of H spaces, z_BVD each, [H], in nats.

    reduction is "mean", "sum" or "none". With "none" the result is the loss of each anchor,
    [H, B, V]. Half precision is computed in float32. An anchor without a positive has loss 0, and
    the mean leaves it out. If no anchor has a positive the loss is 0 and differentiable. The
    temperature may be a tensor, a scalar or [H], and then has a gradient. All z_BVD have the same
    shape and dtype.

    Raises ValueError for an unknown reduction, another shape than [B, V, D], and a single row (no
    other row to compare it with). The temperature is not checked: specs and the public functions do
    so.
    """
    _check(z_by_space[0], reduction)
    with torch.autocast(z_by_space[0].device.type, enabled=False):
        rows = [at_least_float32(z) for z in z_by_space]
        z_BVD = rows[0]
        H, (B, V, _) = len(rows), z_BVD.shape
        if isinstance(temperature, Tensor):
            inverse_H = 1 / temperature.to(z_BVD.dtype).expand(H)
        else:
            inverse_H = z_BVD.new_full((H,), 1 / temperature)
        if reduction != "none" and small_batch.is_small(H * (B * V) ** 2, z_BVD.device):
            pull_HNN, push_HN, num_valid_H = relation.pairs(z_BVD)
            coefficients = pull_HNN, push_HN, _scale(num_valid_H, reduction)
            loss: Tensor = small_batch.SmallBatchSum.apply(inverse_H, *coefficients, *rows)
        else:
            z_HBVD = torch.stack(rows)
            degrees = relation.degrees(z_HBVD)
            loss = _AnchorLoss.apply(z_HBVD, inverse_H, relation, degrees)
            if reduction != "none":
                loss = loss.sum(dim=(1, 2)) * _scale(degrees.num_valid_H(V), reduction)
        return loss


def _scale(num_valid_H: Tensor, reduction: str) -> float | Tensor:
    """Returns the factor of each anchor's loss in the reduced loss, a number or [H]."""
    return 1.0 if reduction == "sum" else num_valid_H.clamp(min=1).reciprocal()


def contrast_by_head(
    z_by_head: Mapping[str, Tensor],
    relation_by_head: Mapping[str, Relation],
    temperature_by_head: Mapping[str, float | Tensor],
) -> Iterator[tuple[list[str], Tensor]]:
    """Yields groups of heads, z_BVD each, with their losses [H] from a joint computation.

    The heads of a group have the same kind of relation, the same shape and dtype of rows, and the
    same number as temperature or a tensor each. Other arguments and errors are as in `contrast`.
    """
    heads_by_kind: dict[object, list[str]] = {}
    for head, relation in relation_by_head.items():
        kind: object = head  # soft positives are computed head by head
        if isinstance(relation, OwnView | EqualLabel):
            z_BVD, t = z_by_head[head], temperature_by_head[head]
            fixed = None if isinstance(t, Tensor) else t
            kind = type(relation), z_BVD.shape, z_BVD.dtype, fixed
        heads_by_kind.setdefault(kind, []).append(head)
    for heads in heads_by_kind.values():
        relations = [relation_by_head[head] for head in heads]
        temperatures = [temperature_by_head[head] for head in heads]
        relation, temperature = relations[0], temperatures[0]
        if labels := [each.labels_HB for each in relations if isinstance(each, EqualLabel)]:
            relation = EqualLabel(torch.cat(labels))
        if learned := [t for t in temperatures if isinstance(t, Tensor)]:
            temperature = torch.stack(learned)
        yield heads, contrast([z_by_head[h] for h in heads], relation, temperature)


class _AnchorLoss(torch.autograd.Function):
    """The loss of every anchor in linear memory, with its gradient in closed form.

    With the sum s_i of the positives' rows, weighted: loss_i =
    (sum of weights * logsumexp_i - z_i.s_i / temperature) / number of positives. Autograd would
    keep several [N, N] tensors. Here logsumexp discards them, and because the relation is
    symmetric, the gradient of z_i.s_i needs the relation's sums only.
    """

    @staticmethod
    def forward(
        ctx: Any, z_HBVD: Tensor, inverse_H: Tensor, relation: Relation, degrees: Degrees
    ) -> Tensor:
        z_HND = z_HBVD.flatten(1, 2)
        logsumexp_HN = log_sums(z_HND, inverse_H)
        positive_sum_HND = relation.sums(z_HBVD).flatten(1, 2)
        similarity_HN = (z_HND * positive_sum_HND).sum(dim=2)
        ctx.save_for_backward(z_HBVD, inverse_H, positive_sum_HND, similarity_HN)
        V = z_HBVD.shape[2]
        weight_HN = degrees.weight_HB.repeat_interleave(V, dim=1)
        share_HN = degrees.share_HB().repeat_interleave(V, dim=1)
        ctx.relation, ctx.logsumexp_HN = relation, logsumexp_HN
        ctx.weight_HN, ctx.share_HN = weight_HN, share_HN
        loss_HN = weight_HN * logsumexp_HN - inverse_H[:, None] * similarity_HN
        return (share_HN * loss_HN).view(z_HBVD.shape[:3])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_HBV: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        z_HBVD, inverse_H, positive_sum_HND, similarity_HN = ctx.saved_tensors
        z_HND = z_HBVD.flatten(1, 2)
        share_HN = ctx.share_HN * gradient_HBV.flatten(1, 2)
        push_HND = rows_gradient(z_HND, inverse_H, ctx.logsumexp_HN, share_HN * ctx.weight_HN)
        pull_HN1 = (share_HN * inverse_H[:, None])[:, :, None]
        # A row is pulled as an anchor by its positives' sum, and as a positive by its anchors.
        anchors_HBVD = ctx.relation.sums((pull_HN1 * z_HND).view_as(z_HBVD))
        on_z_HND = push_HND - pull_HN1 * positive_sum_HND - anchors_HBVD.flatten(1, 2)
        on_inverse_H = None
        if ctx.needs_input_grad[1]:
            # push is W z / t, and in z.(W z) every unordered pair occurs twice.
            on_inverse_H = (push_HND * z_HND).sum(dim=(1, 2)) / (2 * inverse_H)
            on_inverse_H = on_inverse_H - (share_HN * similarity_HN).sum(dim=1)
        return on_z_HND.view_as(z_HBVD), on_inverse_H, None, None


def _check(z_BVD: Tensor, reduction: str) -> None:
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if z_BVD.ndim != 3:
        raise ValueError(f"z must have shape [B, V, D], got {list(z_BVD.shape)}")
    if z_BVD.shape[0] * z_BVD.shape[1] < 2:
        raise ValueError(f"z must hold at least two rows, got shape {list(z_BVD.shape)}")
