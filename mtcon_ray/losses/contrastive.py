"""The expression of every contrastive method here (Khosla et al. 2020, arXiv:2004.11362, eq. 2).

    loss_i = -1/|P(i)| * sum over p in P(i) of
             w_ip [ z_i.z_p/t - log sum over a != i exp(z_i.z_a/t) ]

Anchors i run over all N = B * V rows. The positives P(i) and their weights w come from a relation
(w = 1 in the paper), t is the temperature. Small batches are computed by `small_batch`, large ones
in linear memory by `tiled_logsumexp`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtcon_ray.losses import small_batch
from mtcon_ray.losses.numeric import at_least_float32, full_precision
from mtcon_ray.losses.positives import Degrees, EqualLabel, OwnView, Relation
from mtcon_ray.losses.tiled_logsumexp import log_sums, rows_gradient


class Range(NamedTuple):
    """Usual least and greatest value of a loss, detached, in nats.

    Both are means over the anchors that the loss averages over, so they follow the class balance
    of the batch. ceiling: the loss when all embeddings are equal. floor: derived as follows.

    With q_ip = w_ip / S_i, S_i = sum over p of w_ip, the loss of an anchor is a cross-entropy,

        loss_i = S_i / |P_i| * CE(q_i, softmax over all a != i of z_i.z_a / t),
        CE(q_i, .) = -sum over p of q_ip log r_ip + log(1 + Z_N / Z_P),

    where r_i is the softmax over the positives alone, Z_P the sum of exp(z_i.z_a / t) over the
    positives and Z_N over all other rows. The first term is at least the entropy H(q_i). A cosine
    of unit rows is at most 1, so Z_P <= |P_i| exp(1 / t). If no cosine with another row is below
    1 - g, then Z_N >= |N_i| exp((1 - g) / t). Together

        loss_i >= S_i / |P_i| * (H(q_i) + log(1 + |N_i| / |P_i| exp(-g / t))).

    For K classes this is log(|P_i| + |N_i| exp(-g / t)) with g = K / (K - 1). K equidistant points,
    a point per class, reach it in all anchors at once. No embedding of classes of equal size has a
    lower mean (Graf et al. 2021, arXiv:2102.08817), if all rows are labelled. Otherwise cosines of
    unlabelled rows or small classes with another class can be below 1 - g, and at a warm
    temperature the mean can then be lower than the floor. Two examples at t = 1: the mean falls
    below the floor by 2 % of ceiling - floor for 8 classes of two images with 16 unlabelled images,
    and by 13 % for a class of 12 images with four classes of a single image. At t = 0.1 neither
    mean falls below it.

    Graded positives overlap instead of forming classes. Then only g = 2 holds for every pair.
    It is always a lower bound, but not all anchors reach it at once:
    z_i.z_p / t = log q_ip + const for all i needs a Gram matrix with these entries.
    """

    floor: Tensor
    ceiling: Tensor


class Contrast(NamedTuple):
    """The loss in each of H spaces, with its inputs."""

    loss: Tensor  # nats: [H], or each anchor's [H, B, V], 0 without a positive
    relation: Relation
    z_by_space: Sequence[Tensor]  # [B, V, D] each
    inverse_temperature: float | Tensor  # common to all spaces, or [H]

    @torch.no_grad()
    def range(self) -> Range:
        """Returns the range of the mean over anchors with a positive in this batch, [H] each.

        The floor is a lower bound under the conditions in `Range`.
        """
        z_HBVD = torch.stack(list(self.z_by_space))
        degrees = self.relation.degrees(z_HBVD)
        weight_HB, count_HB = degrees
        share_HB = weight_HB * degrees.share_HB()
        others_HB = (z_HBVD.shape[1] * z_HBVD.shape[2] - 1) - count_HB
        K_H = self.relation.num_groups(z_HBVD).clamp(min=2)
        far_H1 = torch.exp(-K_H / (K_H - 1) * self.inverse_temperature)[:, None]
        num_valid_H = (count_HB > 0).sum(dim=1).clamp(min=1)
        spread_HB = torch.log1p(others_HB / count_HB.clamp(min=1) * far_H1)
        floor_HB = share_HB * (self.relation.entropies(z_HBVD) + spread_HB)
        ceiling_HB = share_HB * torch.log(count_HB + others_HB)
        return Range(floor_HB.sum(dim=1) / num_valid_H, ceiling_HB.sum(dim=1) / num_valid_H)


def contrast(
    z_by_space: Sequence[Tensor],
    relation: Relation,
    temperature: float | Tensor,
    reduction: str = "mean",
) -> Contrast:
    """Computes the loss in each of H spaces, z_BVD each. Half precision is computed in float32.

    reduction is "mean", "sum" or "none". An anchor without a positive has loss 0, and the mean
    leaves it out. If no anchor has a positive the loss is 0 and differentiable. The temperature may
    be a tensor, a scalar or [H], and then has a gradient. All z_BVD have the same shape and dtype.

    Raises ValueError for an unknown reduction, another shape than [B, V, D], and a single row (no
    other row to compare it with). The temperature is not checked: specs and the public functions do
    so.
    """
    _check(z_by_space[0], reduction)
    with full_precision(z_by_space[0].device):
        rows = [at_least_float32(z) for z in z_by_space]
        z_BVD = rows[0]
        H, (B, V, _) = len(rows), z_BVD.shape
        if isinstance(temperature, Tensor):
            temperature = temperature.to(z_BVD.dtype).expand(H)
        inverse = 1 / temperature
        if reduction != "none" and small_batch.is_small(H * (B * V) ** 2, z_BVD.device):
            pull_HNN, push_HN, num_valid_H = relation.pairs(z_BVD)
            scale = _scale(num_valid_H, reduction)
            loss = small_batch.SmallBatchSum.apply(inverse, pull_HNN, push_HN, scale, *rows)
        else:
            z_HBVD = torch.stack(rows)
            inverse_H = inverse if isinstance(inverse, Tensor) else z_HBVD.new_full((H,), inverse)
            degrees = relation.degrees(z_HBVD)
            loss = _AnchorLoss.apply(z_HBVD, inverse_H, relation, degrees)
            if reduction != "none":
                loss = loss.sum(dim=(1, 2)) * _scale(degrees.num_valid_H(V), reduction)
        return Contrast(loss, relation, rows, inverse)


def _scale(num_valid_H: Tensor, reduction: str) -> float | Tensor:
    """Returns the factor of each anchor's loss in the reduced loss, a number or [H]."""
    return 1.0 if reduction == "sum" else num_valid_H.clamp(min=1).reciprocal()


def contrast_by_head(
    z_by_head: Mapping[str, Tensor],
    relation_by_head: Mapping[str, Relation],
    temperature_by_head: Mapping[str, float | Tensor],
) -> Iterator[tuple[list[str], Contrast]]:
    """Yields groups of heads, z_BVD each, with their losses from a joint computation.

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
