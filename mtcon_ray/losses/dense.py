"""The anchors' losses summed up where the pairs are few: all at once, in few operations.

A small batch costs little arithmetic, mostly the start of each operation, on a CPU and on a GPU
alike; so pairs are in memory, the relation is its matrix, and the gradient is made beside the
loss: their sum being linear in the losses, it only waits for a factor. The values are those of
`contrastive` for large batches, the exponents are treated as in `log_sum`. Rows stand view by view
here.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtcon_ray.losses.log_sum import exponents_fit


class DenseSum(torch.autograd.Function):
    """Sum over anchors of share (weight log_sum - rate similarity), [H].

    rate is a number or a tensor [H], pair_HBB what an item's rows weigh for another's, weight_HB
    its sum over an anchor's partners, share_HB what an anchor of an item counts in the sum.
    """

    @staticmethod
    def forward(
        ctx: Any,
        z_HBVD: Tensor,
        rate: float | Tensor,
        pair_HBB: Tensor,
        weight_HB: Tensor,
        share_HB: Tensor,
    ) -> Tensor:
        H, B, V, D = z_HBVD.shape
        z_HND = z_HBVD.transpose(1, 2).reshape(H, V * B, D)
        root = rate.sqrt()[:, None, None] if isinstance(rate, Tensor) else rate**0.5
        x_HND = z_HND * root
        logits_HNN = torch.bmm(x_HND, x_HND.transpose(1, 2))
        diagonal_HN = logits_HNN.diagonal(dim1=1, dim2=2)
        share_HN = torch.cat([share_HB] * V, dim=1)
        # All views of an item have the same partners: the matrix of items repeats as blocks.
        pull_H1B1B = (_of_both(share_HB) * pair_HBB)[:, None, :, None, :]
        similarity_H = (logits_HNN.view(H, V, B, V, B) * pull_H1B1B).sum(dim=(1, 2, 3, 4)) / 2
        # Less what a row weighs for itself, which is 1.
        similarity_H -= (share_HN * diagonal_HN).sum(dim=1)
        push_HN = torch.cat([share_HB * weight_HB] * V, dim=1)
        log_sum_HN, w_HNN = _push(logits_HNN, diagonal_HN, push_HN)
        w_HNN.view(H, V, B, V, B).sub_(pull_H1B1B)
        w_HNN.diagonal(dim1=1, dim2=2).zero_()
        on_x_HND = torch.bmm(w_HNN, z_HND)
        on_rate_H = None
        if isinstance(rate, Tensor):
            # Every pair stands in it twice.
            on_rate_H = (on_x_HND * z_HND).sum(dim=(1, 2)) / 2
        ctx.save_for_backward(on_x_HND, on_rate_H)
        ctx.rate, ctx.num_views = rate, V
        return (push_HN * log_sum_HN).sum(dim=1) - similarity_H

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_H: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        on_x_HND, on_rate_H = ctx.saved_tensors
        on_z_HND = on_x_HND * (gradient_H * ctx.rate)[:, None, None]
        on_z_HBVD = on_z_HND.unflatten(1, (ctx.num_views, -1)).transpose(1, 2)
        return on_z_HBVD, None if on_rate_H is None else on_rate_H * gradient_H, None, None, None


def _push(logits_HNN: Tensor, diagonal_HN: Tensor, push_HN: Tensor) -> tuple[Tensor, Tensor]:
    """Every row's log sum, and what the gradient of their sum, weighed by push, is on the logits.

    Of each pair both sides together. The logits are spoilt, the gradient's diagonal is not defined.
    """
    if exponents_fit(diagonal_HN):
        e_HNN = logits_HNN.exp_()
        diagonal_HN.zero_()
        sum_HN = e_HNN.sum(dim=2)
        # e is symmetric and serves both sides of a pair.
        return sum_HN.log(), e_HNN.mul_(_of_both(push_HN / sum_HN))
    diagonal_HN.fill_(-torch.inf)
    log_sum_HN = logits_HNN.logsumexp(dim=2)
    p_HNN = logits_HNN.sub_(log_sum_HN[:, :, None]).exp_().mul_(push_HN[:, :, None])
    return log_sum_HN, p_HNN + p_HNN.transpose(1, 2)


def _of_both(u_HN: Tensor) -> Tensor:
    """u_i + u_j of every pair, [H, N, N]."""
    return u_HN[:, :, None] + u_HN[:, None, :]
