"""Every anchor's loss where the pairs are few: all of them at once, in as few operations as can be.

A small batch costs little arithmetic, mostly the start of each operation, on a CPU and on a GPU
alike; so pairs are kept for the gradient, and the relation is its matrix. The values are those of
`contrastive` for large batches, the exponents are treated as in `log_sum`. Rows stand view by view
here, so that the weights between items repeat as whole blocks and are never copied to rows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtcon_ray.losses.log_sum import exponents_fit
from mtcon_ray.losses.relations import Degrees


class DenseLoss(torch.autograd.Function):
    """(weight log_sum - rate similarity) / count of every anchor, [H, B, V].

    rate is a number or a tensor [H], weight_HBB the relation's, between items.
    """

    @staticmethod
    def forward(
        ctx: Any, z_HBVD: Tensor, rate: float | Tensor, weight_HBB: Tensor, degrees: Degrees
    ) -> Tensor:
        z_HVBD = z_HBVD.transpose(1, 2).contiguous()
        H, V, B, _ = z_HVBD.shape
        root = rate.sqrt()[:, None, None] if isinstance(rate, Tensor) else rate**0.5
        x_HND = z_HVBD.flatten(1, 2) * root
        fits = exponents_fit(x_HND)
        logits_HNN = torch.bmm(x_HND, x_HND.transpose(1, 2))
        pairs_HVBVB = logits_HNN.view(H, V, B, V, B) * weight_HBB[:, None, :, None, :]
        # Without what a row weighs for itself, which is 1.
        similarity_HN = pairs_HVBVB.view_as(logits_HNN).sum(dim=2)
        similarity_HN -= logits_HNN.diagonal(dim1=1, dim2=2)
        sum_HN = None
        if fits:
            e_HNN = logits_HNN.exp_()
            e_HNN.diagonal(dim1=1, dim2=2).zero_()
            sum_HN = e_HNN.sum(dim=2)
            log_sum_HN = sum_HN.log()
        else:
            logits_HNN.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
            log_sum_HN = logits_HNN.logsumexp(dim=2)
            e_HNN = logits_HNN.sub_(log_sum_HN[:, :, None]).exp_()
        weight_H1B, share_H1B = degrees.weight_HB[:, None], degrees.share_HB()[:, None]
        ctx.save_for_backward(z_HVBD, weight_HBB, e_HNN, sum_HN, weight_H1B, share_H1B)
        ctx.rate = rate
        loss_HVB = weight_H1B * log_sum_HN.view(H, V, B)
        loss_HVB.sub_(similarity_HN.view(H, V, B)).mul_(share_H1B)
        return loss_HVB.transpose(1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_HBV: Tensor) -> tuple[Tensor, Tensor | None, None, None]:
        z_HVBD, weight_HBB, e_HNN, sum_HN, weight_H1B, share_H1B = ctx.saved_tensors
        H, V, B, _ = z_HVBD.shape
        rate = ctx.rate[:, None, None] if isinstance(ctx.rate, Tensor) else ctx.rate
        pull_HVB = gradient_HBV.transpose(1, 2) * (share_H1B * rate)
        push_HN = (pull_HVB * weight_H1B).reshape(H, V * B)
        if sum_HN is not None:
            # e is symmetric and serves both sides of a pair.
            w_HNN = _of_both(push_HN.div_(sum_HN)).mul_(e_HNN)
        else:
            w_HNN = e_HNN * push_HN[:, :, None]
            w_HNN = w_HNN + w_HNN.transpose(1, 2)
        pull_HNN = _of_both(pull_HVB.reshape(H, V * B))
        w_HNN.view(H, V, B, V, B).addcmul_(
            pull_HNN.view(H, V, B, V, B), weight_HBB[:, None, :, None, :], value=-1
        )
        w_HNN.diagonal(dim1=1, dim2=2).zero_()
        on_z_HVBD = torch.bmm(w_HNN, z_HVBD.flatten(1, 2)).view_as(z_HVBD)
        on_rate_H = None
        if ctx.needs_input_grad[1]:
            # Every pair stands in it twice.
            on_rate_H = (on_z_HVBD * z_HVBD).sum(dim=(1, 2, 3)) / (2 * ctx.rate)
        return on_z_HVBD.transpose(1, 2), on_rate_H, None, None


def _of_both(u_HN: Tensor) -> Tensor:
    """u_i + u_j of every pair, [H, N, N]."""
    return u_HN[:, :, None] + u_HN[:, None, :]
