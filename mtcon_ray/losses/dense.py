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
from mtcon_ray.losses.log_sum import exponents_fit


class DenseSum(torch.autograd.Function):
    """scale times the sum over anchors of push log_sum - rate (pull of their partners), [H].

    Of H times rows z_BVD. rate and scale are a number or a tensor [H], of which the rate may need
    a gradient; pull and push are those of `relations.Pairs`. `check` is asked where rows may not
    be finite.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rate: float | Tensor,
        pull_HNN: Tensor,
        push_HN: Tensor | None,
        scale: float | Tensor,
        check: Check,
        *z_by_space: Tensor,
    ) -> Tensor:
        z_HBVD = torch.stack(z_by_space)
        z_HND = z_HBVD.flatten(1, 2)
        logits_HNN = _products(z_HND, rate)
        diagonal_HN = logits_HNN.diagonal(dim1=1, dim2=2)
        fit = exponents_fit(diagonal_HN)
        if not fit:
            check(z_HBVD)
        pulled_HNN = logits_HNN * pull_HNN
        similarity_H = pulled_HNN.sum(dim=(1, 2))
        log_sum_HN, w_HNN = _push(logits_HNN, diagonal_HN, push_HN, fit, pulled_HNN)
        # Every pair pulls from both sides.
        on_z_HND = torch.bmm(w_HNN.sub_(pull_HNN, alpha=2), z_HND)
        on_rate_H = None
        if isinstance(rate, Tensor):
            # Every pair stands in it twice.
            on_rate_H = (on_z_HND * z_HND).sum(dim=(1, 2)) / 2
        # Made here, so that nobody else could change or free them: save_for_backward takes longer.
        ctx.on_z_HBVD, ctx.on_rate_H = on_z_HND.view(z_HBVD.shape), on_rate_H
        ctx.rate, ctx.scale = rate, scale
        if push_HN is not None:
            log_sum_HN = log_sum_HN * push_HN
        return log_sum_HN.sum(dim=1).sub_(similarity_H).mul_(scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_H: Tensor) -> tuple[Tensor | None, ...]:
        on_z_HBVD = ctx.on_z_HBVD * (gradient_H * (ctx.scale * ctx.rate)).view(-1, 1, 1, 1)
        on_rate_H = None
        if ctx.on_rate_H is not None:
            on_rate_H = ctx.on_rate_H * gradient_H * ctx.scale
        return on_rate_H, None, None, None, None, *on_z_HBVD.unbind()


def _products(z_HND: Tensor, rate: float | Tensor) -> Tensor:
    """rate z_i.z_j of every pair, [H, N, N]."""
    if isinstance(rate, Tensor):
        return torch.bmm(z_HND, z_HND.mT).mul_(rate[:, None, None])
    H, N, _ = z_HND.shape
    return z_HND.new_empty(H, N, N).baddbmm_(z_HND, z_HND.mT, beta=0, alpha=rate)


def _push(
    logits_HNN: Tensor,
    diagonal_HN: Tensor,
    push_HN: Tensor | None,
    exponents_fit: bool,
    spare_HNN: Tensor,
) -> tuple[Tensor, Tensor]:
    """Every row's log sum, and what the gradient of their sum, weighed by push, is on the logits.

    Of each pair both sides together. The logits are spoilt, and what is spare.
    """
    if exponents_fit:
        e_HNN = logits_HNN.exp_()
        diagonal_HN.zero_()
        sum_HN = e_HNN.sum(dim=2)
        a_HN = sum_HN.reciprocal() if push_HN is None else push_HN / sum_HN
        # e is symmetric and serves both sides of a pair.
        return sum_HN.log_(), e_HNN.mul_(
            torch.add(a_HN.unsqueeze(2), a_HN.unsqueeze(1), out=spare_HNN)
        )
    diagonal_HN.fill_(-torch.inf)
    log_sum_HN = logits_HNN.logsumexp(dim=2)
    p_HNN = logits_HNN.sub_(log_sum_HN[:, :, None]).exp_()
    if push_HN is not None:
        p_HNN.mul_(push_HN[:, :, None])
    return log_sum_HN, p_HNN + p_HNN.transpose(1, 2)
