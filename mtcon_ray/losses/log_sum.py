"""For every row the log of a sum over all other rows, and its gradient, in linear memory.

    log_sum_i = log sum over a != i of exp(rate z_i.z_a)

for H spaces of N rows each. Where N is large the [N, N] exponentials are made in square tiles,
used and dropped, and made again for the gradient. They are symmetric, so that only tiles on and
above the diagonal are made. What a gradient u on log_sum sends to the rows is

    rate * W z,   W_ij = u_i P_ij + u_j P_ji,   P_ij = exp(rate z_i.z_j - log_sum_i),  P_ii = 0.

With one shift c for all rows, P_ij = E_ij exp(c - log_sum_i) of one symmetric E. That needs
exponents which no shift by c can push out of the number's range. On a CPU it is looked up whether
they can; on another device looking would wait for it, so there, and at very small temperatures,
every row is shifted by its own maximum.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

TILE = 512
# All spaces at once up to so many exponentials, which are then kept for the gradient.
MOST_KEPT = 2**20
# exp(-ROOM) is still a normal number.
ROOM = {torch.float32: 80.0, torch.float64: 700.0}


class LogSums(NamedTuple):
    """log_sum_HN, and what its gradient takes; all detached."""

    log_sum_HN: Tensor
    shift_H: Tensor | None  # c, where one serves all rows
    kept_HNN: Tensor | None  # E, or P without a shift


def log_sums(z_HND: Tensor, rate_H: Tensor) -> LogSums:
    """Of every row; float32 or float64, N at least 2, rates positive."""
    x_HND = z_HND * rate_H.sqrt()[:, None, None]
    shift_H = _shift(x_HND)
    H, N, _ = x_HND.shape
    if H * N * N <= MOST_KEPT:
        return _at_once(x_HND, shift_H)
    shifts = [None] * H if shift_H is None else shift_H
    rows = [
        _row_maxima(x_ND) if shift is None else _symmetric(x_ND, shift)
        for x_ND, shift in zip(x_HND, shifts, strict=True)
    ]
    return LogSums(torch.stack(rows), shift_H, None)


def rows_gradient(z_HND: Tensor, rate_H: Tensor, found: LogSums, u_HN: Tensor) -> Tensor:
    """rate * W z as above: what u_HN, a gradient on log_sum_HN, is on z_HND."""
    root_H11 = rate_H.sqrt()[:, None, None]
    x_HND = z_HND * root_H11
    log_sum_HN, shift_H, kept_HNN = found
    a_HN = u_HN if shift_H is None else u_HN * torch.exp(shift_H[:, None] - log_sum_HN)
    if kept_HNN is not None:
        w_HNN = kept_HNN * a_HN[:, :, None]
        # In one turn: E is symmetric, P is not.
        w_HNN = w_HNN + (w_HNN.transpose(1, 2) if shift_H is None else kept_HNN * a_HN[:, None, :])
        return torch.bmm(w_HNN, x_HND) * root_H11
    gradients = []
    for h, x_ND in enumerate(x_HND):
        if shift_H is None:
            gradients.append(_gradient_by_rows(x_ND, log_sum_HN[h], a_HN[h]))
        else:
            gradients.append(_gradient_by_tiles(x_ND, shift_H[h], a_HN[h]))
    return torch.stack(gradients) * root_H11


def _shift(x_HND: Tensor) -> Tensor | None:
    """The greatest exponent of each space, if all others fit into the number's range below it."""
    if x_HND.device.type != "cpu":
        return None
    shift_H = x_HND.square().sum(dim=2).amax(dim=1)
    # By Cauchy and Schwarz the exponents lie between -c and c.
    return shift_H if 2 * shift_H.max().item() <= ROOM[x_HND.dtype] else None


def _at_once(x_HND: Tensor, shift_H: Tensor | None) -> LogSums:
    columns_HDN = x_HND.transpose(1, 2)
    if shift_H is None:
        logits_HNN = torch.bmm(x_HND, columns_HDN)
        logits_HNN.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
        log_sum_HN = logits_HNN.logsumexp(dim=2)
        return LogSums(log_sum_HN, None, torch.exp(logits_HNN - log_sum_HN[:, :, None]))
    e_HNN = torch.baddbmm(-shift_H[:, None, None], x_HND, columns_HDN).exp_()
    e_HNN.diagonal(dim1=1, dim2=2).zero_()
    return LogSums(e_HNN.sum(dim=2).log_() + shift_H[:, None], shift_H, e_HNN)


def _symmetric(x_ND: Tensor, shift: Tensor) -> Tensor:
    sum_N = x_ND.new_zeros(len(x_ND))
    for i, j, e_IJ in _tiles(x_ND, shift):
        sum_N[i] += e_IJ.sum(dim=1)
        if i != j:
            sum_N[j] += e_IJ.sum(dim=0)
    return sum_N.log() + shift


def _gradient_by_tiles(x_ND: Tensor, shift: Tensor, a_N: Tensor) -> Tensor:
    gradient_ND = torch.zeros_like(x_ND)
    for i, j, e_IJ in _tiles(x_ND, shift):
        w_IJ = e_IJ.mul_(a_N[i, None] + a_N[j])
        gradient_ND[i].addmm_(w_IJ, x_ND[j])
        if i != j:
            gradient_ND[j].addmm_(w_IJ.T, x_ND[i])
    return gradient_ND


def _tiles(x_ND: Tensor, shift: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """E's tiles on and above its diagonal, with the rows and columns that they are."""
    slices = [slice(i, i + TILE) for i in range(0, len(x_ND), TILE)]
    for n, i in enumerate(slices):
        for j in slices[n:]:
            e_IJ = torch.addmm(-shift, x_ND[i], x_ND[j].T).exp_()
            if i == j:
                e_IJ.fill_diagonal_(0)
            yield i, j, e_IJ


def _row_maxima(x_ND: Tensor) -> Tensor:
    return torch.cat([logits_IN.logsumexp(dim=1) for _, logits_IN in _strips(x_ND)])


def _gradient_by_rows(x_ND: Tensor, log_sum_N: Tensor, u_N: Tensor) -> Tensor:
    gradient_ND = torch.zeros_like(x_ND)
    for i, logits_IN in _strips(x_ND):
        w_IN = logits_IN.sub_(log_sum_N[i, None]).exp_().mul_(u_N[i, None])
        gradient_ND[i] += w_IN @ x_ND
        gradient_ND += w_IN.T @ x_ND[i]
    return gradient_ND


def _strips(x_ND: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """All exponents of some rows at a time, the row with itself at minus infinity."""
    N = len(x_ND)
    height = max(1, TILE * TILE * 4 // N)
    for start in range(0, N, height):
        i = slice(start, min(start + height, N))
        logits_IN = x_ND[i] @ x_ND.T
        logits_IN.diagonal(offset=start).fill_(-torch.inf)
        yield i, logits_IN
