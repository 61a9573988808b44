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
        z_HVBD = z_HBVD.transpose(1, 2).contiguous()
        push_HB = share_HB * weight_HB
        log_sum_H, pushed_HVBD = _push(z_HVBD, rate, push_HB)
        # All views of an item have the same partners, so that their sums stand for them; less
        # what a row weighs for itself, which is 1.
        item_HBD = z_HVBD.sum(dim=1)
        pull_HBB = _of_both(share_HB) * pair_HBB
        pulled_HBD = torch.bmm(pull_HBB, item_HBD)
        own_HVBD = z_HVBD * share_HB[:, None, :, None]
        similarity_H = (pulled_HBD * item_HBD).sum(dim=(1, 2)) / 2
        similarity_H -= (own_HVBD * z_HVBD).sum(dim=(1, 2, 3))
        rate_H111 = rate[:, None, None, None] if isinstance(rate, Tensor) else rate
        on_z_HVBD = pushed_HVBD.sub_(pulled_HBD[:, None]).add_(own_HVBD, alpha=2).mul_(rate_H111)
        on_rate_H = None
        if isinstance(rate, Tensor):
            # Every pair stands in it twice.
            on_rate_H = (on_z_HVBD * z_HVBD).sum(dim=(1, 2, 3)) / (2 * rate)
        ctx.save_for_backward(on_z_HVBD, on_rate_H)
        return log_sum_H - rate * similarity_H

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_H: Tensor) -> tuple[Tensor, Tensor | None, None, None, None]:
        on_z_HVBD, on_rate_H = ctx.saved_tensors
        on_z_HBVD = (on_z_HVBD * gradient_H[:, None, None, None]).transpose(1, 2)
        return on_z_HBVD, None if on_rate_H is None else on_rate_H * gradient_H, None, None, None


def _push(z_HVBD: Tensor, rate: float | Tensor, push_HB: Tensor) -> tuple[Tensor, Tensor]:
    """Sum over anchors of push log_sum, [H], and its gradient on z over the rate, as z."""
    z_HND = z_HVBD.flatten(1, 2)
    push_HN = push_HB.repeat(1, z_HVBD.shape[1])
    root = rate.sqrt()[:, None, None] if isinstance(rate, Tensor) else rate**0.5
    x_HND = z_HND * root
    fits = exponents_fit(x_HND)
    logits_HNN = torch.bmm(x_HND, x_HND.transpose(1, 2))
    if fits:
        e_HNN = logits_HNN.exp_()
        e_HNN.diagonal(dim1=1, dim2=2).zero_()
        sum_HN = e_HNN.sum(dim=2)
        log_sum_HN = sum_HN.log()
        # e is symmetric and serves both sides of a pair.
        w_HNN = e_HNN.mul_(_of_both(push_HN / sum_HN))
    else:
        logits_HNN.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
        log_sum_HN = logits_HNN.logsumexp(dim=2)
        w_HNN = logits_HNN.sub_(log_sum_HN[:, :, None]).exp_().mul_(push_HN[:, :, None])
        w_HNN = w_HNN + w_HNN.transpose(1, 2)
    return (push_HN * log_sum_HN).sum(dim=1), torch.bmm(w_HNN, z_HND).view(z_HVBD.shape)


def _of_both(u_HN: Tensor) -> Tensor:
    """u_i + u_j of every pair, [H, N, N]."""
    return u_HN[:, :, None] + u_HN[:, None, :]
