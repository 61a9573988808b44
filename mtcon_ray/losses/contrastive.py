"""The one expression under every contrastive method here (METHODS 0, 10.1).

    loss_i = -1/|P(i)| * sum over p in P(i) of
             w_ip [ z_i.z_p/t - log sum over a != i exp(z_i.z_a/t) ]

Anchors i run over all N = B * V rows, P(i) and the weights w come from a relation, t is the
temperature.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtcon_ray.losses.checks import Check, unchecked
from mtcon_ray.losses.dense import DenseSum
from mtcon_ray.losses.log_sum import log_sums, rows_gradient
from mtcon_ray.losses.precision import full_precision
from mtcon_ray.losses.relations import Degrees, Relation, are_few, stacked


class Range(NamedTuple):
    """Least and greatest value that a loss sensibly takes, detached, in nats.

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

    For K classes this is log(|P_i| + |N_i| exp(-g / t)) with g = K / (K - 1): K equidistant points,
    one per class, reach it in all anchors at once, and no embedding of classes of equal size has a
    lower mean (Graf et al. 2021, arXiv:2102.08817). Graded positives overlap instead of forming
    classes; g = 2 is then the only bound that holds for every pair. It is a lower bound, which not
    all anchors reach at once: z_i.z_p / t = log q_ip + const for all i needs a Gram matrix with
    these entries.
    """

    floor: Tensor
    ceiling: Tensor


class Contrast(NamedTuple):
    """The loss in each of H spaces, and what it is made of."""

    loss: Tensor  # nats: [H], their total, or every anchor's [H, B, V], 0 where without a partner
    relation: Relation
    z_by_space: Sequence[Tensor]  # [B, V, D] each
    rate: float | Tensor  # 1 / temperature, one for all or [H]

    @torch.no_grad()
    def range(self) -> Range:
        """What the mean over anchors with a partner attains in this batch: each [H]."""
        z_HBVD = torch.stack(list(self.z_by_space))
        degrees = self.relation.degrees(z_HBVD)
        weight_HB, count_HB = degrees
        share_HB = weight_HB * degrees.share_HB()
        others_HB = (z_HBVD.shape[1] * z_HBVD.shape[2] - 1) - count_HB
        K_H = self.relation.num_groups(z_HBVD).clamp(min=2)
        far_H1 = torch.exp(-K_H / (K_H - 1) * self.rate)[:, None]
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
    average_over: str = "valid",
    total: bool = False,
    check: Check = unchecked,
) -> Contrast:
    """The loss in each of H spaces, z_BVD each; half precision is computed in float32.

    Reduction and average are those of `contrastive`; with `total` the losses are added up, unless
    they are not reduced. The temperature may be a tensor, a scalar or
    [H], and then has a gradient. `check` looks for rows that are not finite, unless it is seen
    otherwise that there are none.

    Raises ValueError for a temperature that is not positive, another shape than [B, V, D],
    and a single row, which has nobody to be compared with.
    """
    _check(z_by_space[0], temperature)
    with full_precision(z_by_space[0].device):
        rows = [z if z.dtype == torch.float64 else z.float() for z in z_by_space]
        z_BVD = rows[0]
        H, (B, V, _) = len(rows), z_BVD.shape
        rate: float | Tensor
        if isinstance(temperature, Tensor):
            rate = (1 / temperature.to(z_BVD.dtype)).expand(H)
        else:
            rate = 1 / temperature
        if reduction != "none" and are_few(H, B * V):
            pull_HNN, push_HN, num_valid_H = relation.pairs(z_BVD)
            scale = _scale(num_valid_H, B * V, reduction, average_over)
            loss = DenseSum.apply(rate, pull_HNN, push_HN, scale, total, check, *rows)
        else:
            z_HBVD = torch.stack(rows)
            check(z_HBVD)
            rate_H = rate if isinstance(rate, Tensor) else z_HBVD.new_full((H,), rate)
            degrees = relation.degrees(z_HBVD)
            loss = _AnchorLoss.apply(z_HBVD, rate_H, relation, degrees)
            if reduction != "none":
                scale = _scale(degrees.num_valid_H(V), B * V, reduction, average_over)
                loss = loss.sum(dim=(1, 2)) * scale
                loss = loss.sum() if total else loss
        return Contrast(loss, relation, rows, rate)


def _scale(
    num_valid_H: Tensor | None, num_rows: int, reduction: str, average_over: str
) -> float | Tensor:
    """What an anchor's loss counts in the reduced one, a number or [H]."""
    if reduction == "sum":
        return 1.0
    if average_over == "all" or num_valid_H is None:
        return 1 / num_rows
    return num_valid_H.clamp(min=1).reciprocal()


def contrast_by_head(
    z_by_head: Mapping[str, Tensor],
    relation_by_head: Mapping[str, Relation],
    temperature_by_head: Mapping[str, float | Tensor],
) -> Iterator[tuple[tuple[str, ...], Contrast]]:
    """The heads, z_BVD each, in groups that one computation serves: those of a kind and width.

    Raises ValueError as `contrast` does.
    """
    for heads, relation in stacked(relation_by_head, z_by_head):
        rows = [z_by_head[head] for head in heads]
        temperature = joined_temperatures([temperature_by_head[head] for head in heads], rows[0])
        yield heads, contrast(rows, relation, temperature)


def joined_temperatures(temperatures: list[float | Tensor], z_BVD: Tensor) -> float | Tensor:
    """One temperature for all, or a tensor of each space's own."""
    for t in temperatures:
        _check_temperature(t)
    if not any(isinstance(t, Tensor) for t in temperatures) and len(set(temperatures)) == 1:
        return temperatures[0]
    dtype = torch.promote_types(z_BVD.dtype, torch.float32)
    like = z_BVD.new_empty((), dtype=dtype)
    # Made on the device: to copy a number there would wait for it.
    return torch.stack([t if isinstance(t, Tensor) else like.new_full((), t) for t in temperatures])


class _AnchorLoss(torch.autograd.Function):
    """(weight log_sum - rate similarity) / count of every anchor, with its gradient in closed form.

    Autograd would keep several [N, N] tensors; here the log sum drops them, and the relation
    being symmetric, its gradient is the relation's sums once more.
    """

    @staticmethod
    def forward(
        ctx: Any, z_HBVD: Tensor, rate_H: Tensor, relation: Relation, degrees: Degrees
    ) -> Tensor:
        z_HND = z_HBVD.flatten(1, 2)
        found = log_sums(z_HND, rate_H)
        partner_sum_HND = relation.sums(z_HBVD).flatten(1, 2)
        similarity_HN = (z_HND * partner_sum_HND).sum(dim=2)
        ctx.save_for_backward(z_HBVD, rate_H, partner_sum_HND, similarity_HN)
        V = z_HBVD.shape[2]
        weight_HN = degrees.weight_HB.repeat_interleave(V, dim=1)
        share_HN = degrees.share_HB().repeat_interleave(V, dim=1)
        ctx.found, ctx.relation, ctx.weight_HN, ctx.share_HN = found, relation, weight_HN, share_HN
        loss_HN = weight_HN * found.log_sum_HN - rate_H[:, None] * similarity_HN
        return (share_HN * loss_HN).view(z_HBVD.shape[:3])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_HBV: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        z_HBVD, rate_H, partner_sum_HND, similarity_HN = ctx.saved_tensors
        z_HND = z_HBVD.flatten(1, 2)
        share_HN = ctx.share_HN * gradient_HBV.flatten(1, 2)
        push_HND = rows_gradient(z_HND, rate_H, ctx.found, share_HN * ctx.weight_HN)
        pull_HN1 = (share_HN * rate_H[:, None])[:, :, None]
        partners_HBVD = ctx.relation.sums((pull_HN1 * z_HND).view_as(z_HBVD))
        on_z_HND = push_HND - pull_HN1 * partner_sum_HND - partners_HBVD.flatten(1, 2)
        on_rate_H = None
        if ctx.needs_input_grad[1]:
            # push is rate W z, and z W z counts every pair twice.
            on_rate_H = (push_HND * z_HND).sum(dim=(1, 2)) / (2 * rate_H)
            on_rate_H = on_rate_H - (share_HN * similarity_HN).sum(dim=1)
        return on_z_HND.view_as(z_HBVD), on_rate_H, None, None


def contrastive(
    z_BVD: Tensor,
    relation: Relation,
    *,
    temperature: float | Tensor,
    reduction: str = "mean",
    average_over: str = "valid",
    check: Check = unchecked,
) -> Tensor:
    """Loss in nats per anchor: a scalar, or [B, V] with reduction="none".

    z_BVD holds unit rows. An anchor without a partner counts 0; it leaves the mean with
    average_over="valid" and stays in it with "all". If no anchor has a partner the loss is 0 and
    differentiable. The temperature may be a scalar tensor and then has a gradient.

    Raises ValueError as `contrast` does, and for unknown words.
    """
    check_reduction(reduction, average_over)
    loss = contrast([z_BVD], relation, temperature, reduction, average_over, check=check).loss
    return loss[0]


def check_reduction(reduction: str, average_over: str) -> None:
    """Raises ValueError for an unknown word."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
    if average_over not in ("valid", "all"):
        raise ValueError(f"average_over must be 'valid' or 'all', got {average_over!r}")


def _check(z_BVD: Tensor, temperature: float | Tensor) -> None:
    if z_BVD.ndim != 3:
        raise ValueError(f"z must have shape [B, V, D], got {list(z_BVD.shape)}")
    if z_BVD.shape[0] * z_BVD.shape[1] < 2:
        raise ValueError(f"z must hold at least two rows, got shape {list(z_BVD.shape)}")
    _check_temperature(temperature)


def _check_temperature(temperature: float | Tensor) -> None:
    # Of a tensor only the caller knows: looking would wait for the device.
    if not isinstance(temperature, Tensor) and not 0 < temperature < float("inf"):
        raise ValueError(f"temperature must be positive, got {temperature}")
