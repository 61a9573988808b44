"""The anchors' losses summed up where the pairs are few: all at once, in few operations.

A small batch costs little arithmetic, mostly the start of each operation, on a CPU and on a GPU
alike; so pairs are in memory, the relation is its matrix, and the gradient is made beside the
loss: their sum being linear in the losses, it only waits for a factor. The values are those of
`contrastive` for large batches, the exponents are treated as in `log_sum`.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtcon_ray.losses.checks import Check
from mtcon_ray.losses.log_sum import LOG2_E, exponents_fit, may_look


class DenseSum(torch.autograd.Function):
    """scale times the sum over anchors of push log_sum - rate (pull of their partners), [H].

    Of H times rows z_BVD; with `total` the sum of these. rate and scale are a number or a tensor
    [H], of which the rate may need a gradient; pull and push are those of `relations.Pairs`.
    `check` is asked where rows may not be finite.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rate: float | Tensor,
        pull_HNN: Tensor,
        push_HN: Tensor | None,
        scale: float | Tensor,
        total: bool,
        check: Check,
        *z_by_space: Tensor,
    ) -> Tensor:
        z_HBVD = torch.stack(z_by_space)
        z_HND = z_HBVD.flatten(1, 2)
        # In bits, whose powers are the faster ones, where it may be seen whether these fit.
        per_nat = LOG2_E if may_look(z_HND) else 1.0
        logits_HNN = _products(z_HND, z_HND.mT, rate * per_nat)
        diagonal_HN = logits_HNN.diagonal(dim1=1, dim2=2)
        fit = exponents_fit(diagonal_HN, per_nat=per_nat)
        if not fit:
            check(z_HBVD)
        pulled_HNN = logits_HNN * pull_HNN
        pulled_HN = pulled_HNN.sum(dim=2)
        if not fit and per_nat != 1:
            logits_HNN.div_(per_nat)
        log_sum_HN, w_HNN = _force(logits_HNN, diagonal_HN, pull_HNN, push_HN, fit, pulled_HNN)
        # Twice, for every pair pulls, and is pushed, from both sides.
        on_z_HND = _products(w_HNN, z_HND, -2 * scale * rate)
        ctx.on_rate_H = None
        if isinstance(rate, Tensor):
            # Every pair stands in it twice.
            ctx.on_rate_H = (on_z_HND * z_HND).sum(dim=(1, 2)) / (2 * rate)
        # Made here, so that nobody else could change or free it: save_for_backward takes longer.
        ctx.on_z_HBVD = on_z_HND.view(z_HBVD.shape)
        if push_HN is not None:
            log_sum_HN = log_sum_HN * push_HN
        loss_HN = log_sum_HN.sub_(pulled_HN, alpha=1 / per_nat)
        if total and not isinstance(scale, Tensor):
            return loss_HN.sum().mul_(scale)
        loss_H = loss_HN.sum(dim=1).mul_(scale)
        return loss_H.sum() if total else loss_H

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        on_z_HBVD = ctx.on_z_HBVD * gradient.view(-1, 1, 1, 1)
        on_rate_H = None if ctx.on_rate_H is None else ctx.on_rate_H * gradient
        return on_rate_H, None, None, None, None, None, *on_z_HBVD.unbind()


def _products(x_HNK: Tensor, y_HKM: Tensor, factor: float | Tensor) -> Tensor:
    """factor x y, [H, N, M], of a number or [H]."""
    if isinstance(factor, Tensor):
        return torch.bmm(x_HNK, y_HKM).mul_(factor[:, None, None])
    products_HNM = x_HNK.new_empty(x_HNK.shape[0], x_HNK.shape[1], y_HKM.shape[2])
    return products_HNM.baddbmm_(x_HNK, y_HKM, beta=0, alpha=factor)


def _force(
    logits_HNN: Tensor,
    diagonal_HN: Tensor,
    pull_HNN: Tensor,
    push_HN: Tensor | None,
    fit: bool,
    spare_HNN: Tensor,
) -> tuple[Tensor, Tensor]:
    """Every row's log sum, and minus half of what the loss's gradient is on each pair's logits.

    Of both sides of the pair together. Logits that fit are in bits, others in nats; they are
    spoilt, and what is spare.
    """
    if fit:
        e_HNN = logits_HNN.exp2_()
        diagonal_HN.zero_()
        sum_HN = e_HNN.sum(dim=2)
        a_HN = sum_HN.reciprocal() if push_HN is None else push_HN / sum_HN
        # e is symmetric and serves both sides of a pair.
        both_HNN = torch.add(a_HN.unsqueeze(2), a_HN.unsqueeze(1), out=spare_HNN)
        return sum_HN.log_(), torch.addcmul(pull_HNN, e_HNN, both_HNN, value=-0.5, out=e_HNN)
    diagonal_HN.fill_(-torch.inf)
    log_sum_HN = logits_HNN.logsumexp(dim=2)
    p_HNN = logits_HNN.sub_(log_sum_HN[:, :, None]).exp_()
    if push_HN is not None:
        p_HNN.mul_(push_HN[:, :, None])
    return log_sum_HN, pull_HNN.sub(p_HNN + p_HNN.transpose(1, 2), alpha=0.5)
