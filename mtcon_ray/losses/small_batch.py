"""The sum of the anchors' losses of a small batch, with [H, N, N] tensors.

Small batches are dominated by kernel-launch overhead. This path therefore materialises the
[H, N, N] logits, serves all H spaces with the same operations, and computes the gradient in the
forward pass. Backward only scales it by the incoming gradient.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from mtcon_ray.losses import tiled_logsumexp

# Up to this many elements the [H, N, N] tensors are materialised. On a GPU the other path needs
# more kernel launches and adds floats in a different order in each run.
MOST_PAIRS, MOST_PAIRS_OF_GPU = 2**20, 2**26


def is_small(num_pairs: int, device: torch.device) -> bool:
    """Returns True if this many elements H * N * N are to be materialised on the device."""
    return num_pairs <= (MOST_PAIRS_OF_GPU if device.type == "cuda" else MOST_PAIRS)


class SmallBatchSum(torch.autograd.Function):
    """scale * sum over anchors of (push logsumexp - pull . logits), [H], of rows z_BVD of H spaces.

    `scale` is a number or a tensor [H]. pull and push are the coefficients of `Relation.pairs`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inverse_H: Tensor,
        pull_HNN: Tensor,
        push_HN: Tensor,
        scale: float | Tensor,
        *z_by_space: Tensor,
    ) -> Tensor:
        z_HBVD = torch.stack(z_by_space)
        z_HND = z_HBVD.flatten(1, 2)
        scaled_HND = z_HND * inverse_H[:, None, None]
        logits_HNN = torch.bmm(scaled_HND, z_HND.mT)
        # Before the logits are overwritten.
        pulled_HN = (logits_HNN * pull_HNN).sum(dim=2)
        logsumexp_HN, gradient_HNN = _logsumexp(logits_HNN, pull_HNN, push_HN)
        on_z_HND = torch.bmm(gradient_HNN, scaled_HND)
        # Kept as attributes: save_for_backward is for inputs and outputs, and costs more time.
        ctx.on_z_HBVD = on_z_HND.view(z_HBVD.shape)
        ctx.scale, ctx.on_inverse_H = scale, None
        if ctx.needs_input_grad[0]:
            # The logits are linear in it: sum of gradient * logits / inverse temperature. In
            # z * dL/dz each unordered pair occurs twice.
            ctx.on_inverse_H = (on_z_HND * z_HND).sum(dim=(1, 2)) / (2 * inverse_H)
        return (push_HN * logsumexp_HN - pulled_HN).sum(dim=1) * scale

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_H: Tensor) -> tuple[Tensor | None, ...]:
        gradient_H = gradient_H * ctx.scale
        # Not in place: a retained graph needs the same gradient again.
        on_z_HBVD = ctx.on_z_HBVD * gradient_H.view(-1, 1, 1, 1)
        on_inverse_H = None if ctx.on_inverse_H is None else ctx.on_inverse_H * gradient_H
        return on_inverse_H, None, None, None, *on_z_HBVD.unbind()


def _logsumexp(logits_HNN: Tensor, pull_HNN: Tensor, push_HN: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each row's logsumexp over the other rows, and the gradient on the logits.

    The gradient, [H, N, N], is dL/dlogits summed over (i, j) and (j, i), because the logits are
    symmetric: with the softmax p it is push_i p_ij + push_j p_ji - 2 pull_ij. Overwrites
    `logits_HNN`.
    """
    diagonal_HN = logits_HNN.diagonal(dim1=1, dim2=2)
    if tiled_logsumexp.exponents_fit(diagonal_HN):
        # No shift by the row maximum is needed, so exp(logits) is symmetric and serves both (i, j)
        # and (j, i).
        e_HNN = logits_HNN.exp_()
        diagonal_HN.zero_()
        sum_HN = e_HNN.sum(dim=2)
        a_HN = push_HN / sum_HN
        gradient_HNN = e_HNN.mul_(a_HN[:, :, None] + a_HN[:, None, :])
        return sum_HN.log_(), gradient_HNN.sub_(pull_HNN, alpha=2)
    diagonal_HN.fill_(-torch.inf)
    logsumexp_HN = logits_HNN.logsumexp(dim=2)
    p_HNN = logits_HNN.sub_(logsumexp_HN[:, :, None]).exp_().mul_(push_HN[:, :, None])
    return logsumexp_HN, (p_HNN + p_HNN.mT).sub_(pull_HNN, alpha=2)
