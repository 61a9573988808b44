"""For every row the log of a sum over all other rows, and its gradient, in linear memory.

    log_sum_i = log sum over a != i of exp(rate z_i.z_a)

for H spaces of N rows each. The [N, N] exponentials are made in square tiles, used and dropped,
and made again for the gradient. They are symmetric, so that only tiles on and above the diagonal
are made. What a gradient u on log_sum sends to the rows is

    rate * W z,   W_ij = u_i P_ij + u_j P_ji,   P_ij = exp(rate z_i.z_j - log_sum_i),  P_ii = 0.

P_ij = E_ij exp(-log_sum_i) of one symmetric E, if all exponents fit into the number's range. On a
CPU it is looked up whether they do; on another device looking would wait for it, so there, and at
very small temperatures, every row is shifted by its own maximum.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

TILE = 512
# Exponents at a time: what a cache holds, and what keeps a GPU busy (256 MiB).
ON_CPU, ELSEWHERE = 2**20, 2**26
# exp(x) = exp2(LOG2_E x), for which torch takes a third of the time on a CPU.
LOG2_E = 1 / math.log(2)
# Exponents up to here, nats of either sign, leave room for sums of them and gradients times them.
ROOM = {torch.float32: 65.0, torch.float64: 600.0}


class LogSums(NamedTuple):
    """log_sum_HN, detached, and whether the exponents fit as they are."""

    log_sum_HN: Tensor
    fits: bool


def log_sums(z_HND: Tensor, rate_H: Tensor) -> LogSums:
    """Of every row; float32 or float64, N at least 2, rates positive."""
    x_HND = z_HND * rate_H.sqrt()[:, None, None]
    fits = exponents_fit(x_HND.square().sum(dim=2))
    rows = [_symmetric(x_ND) if fits else _row_maxima(x_ND) for x_ND in x_HND]
    return LogSums(torch.stack(rows), fits)


def rows_gradient(z_HND: Tensor, rate_H: Tensor, found: LogSums, u_HN: Tensor) -> Tensor:
    """rate * W z as above: what u_HN, a gradient on log_sum_HN, is on z_HND."""
    root_H11 = rate_H.sqrt()[:, None, None]
    gradients = [
        _gradient_by_tiles(x_ND, u_N * torch.exp(-log_sum_N))
        if found.fits
        else _gradient_by_rows(x_ND, log_sum_N, u_N)
        for x_ND, log_sum_N, u_N in zip(z_HND * root_H11, found.log_sum_HN, u_HN, strict=True)
    ]
    return torch.stack(gradients) * root_H11


def may_look(x: Tensor) -> bool:
    """Whether to ask for a value costs nothing: elsewhere one would wait for the device."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def exponents_fit(square_HN: Tensor, *, per_nat: float = 1.0) -> bool:
    """Whether all x_i.x_j are known to have room in the number's range; False where in doubt.

    square_HN are all x_i.x_i, in units of which `per_nat` are a nat: by Cauchy and Schwarz no
    product is beyond the greatest.
    """
    return may_look(square_HN) and bool(square_HN.max().item() <= ROOM[square_HN.dtype] * per_nat)


def _symmetric(x_ND: Tensor) -> Tensor:
    sum_N = x_ND.new_zeros(len(x_ND))
    for i, j, e_IJ in _tiles(x_ND):
        sum_N[i] += e_IJ.sum(dim=1)
        if i != j:
            sum_N[j] += e_IJ.sum(dim=0)
    return sum_N.log_()


def _gradient_by_tiles(x_ND: Tensor, a_N: Tensor) -> Tensor:
    gradient_ND = torch.zeros_like(x_ND)
    for i, j, e_IJ in _tiles(x_ND):
        w_IJ = e_IJ.mul_(a_N[i, None] + a_N[j])
        gradient_ND[i].addmm_(w_IJ, x_ND[j])
        if i != j:
            gradient_ND[j].addmm_(w_IJ.T, x_ND[i])
    return gradient_ND


def _tiles(x_ND: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """E's tiles on and above its diagonal, with the rows and columns that they are."""
    x_ND = x_ND * LOG2_E**0.5
    slices = [slice(i, i + TILE) for i in range(0, len(x_ND), TILE)]
    for n, i in enumerate(slices):
        for j in slices[n:]:
            e_IJ = torch.mm(x_ND[i], x_ND[j].T).exp2_()
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
    height = max(1, (ON_CPU if x_ND.device.type == "cpu" else ELSEWHERE) // N)
    for start in range(0, N, height):
        i = slice(start, min(start + height, N))
        logits_IN = x_ND[i] @ x_ND.T
        logits_IN.diagonal(offset=start).fill_(-torch.inf)
        yield i, logits_IN
