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
    return LogSums(_symmetric(x_HND) if fits else _row_maxima(x_HND), fits)


def rows_gradient(z_HND: Tensor, rate_H: Tensor, found: LogSums, u_HN: Tensor) -> Tensor:
    """rate * W z as above: what u_HN, a gradient on log_sum_HN, is on z_HND."""
    root_H11 = rate_H.sqrt()[:, None, None]
    x_HND = z_HND * root_H11
    if found.fits:
        gradient_HND = _gradient_by_tiles(x_HND, u_HN * torch.exp(-found.log_sum_HN))
    else:
        gradient_HND = _gradient_by_strips(x_HND, found.log_sum_HN, u_HN)
    return gradient_HND * root_H11


def may_look(x: Tensor) -> bool:
    """Whether to ask for a value costs nothing: elsewhere one would wait for the device."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def exponents_fit(square_HN: Tensor, *, per_nat: float = 1.0) -> bool:
    """Whether all x_i.x_j are known to have room in the number's range; False where in doubt.

    square_HN are all x_i.x_i, in units of which `per_nat` are a nat: by Cauchy and Schwarz no
    product is beyond the greatest.
    """
    return may_look(square_HN) and bool(square_HN.max().item() <= ROOM[square_HN.dtype] * per_nat)


def _symmetric(x_HND: Tensor) -> Tensor:
    sum_HN = x_HND.new_zeros(x_HND.shape[:2])
    for h, i, j, e_IJ in _tiles(x_HND):
        sum_HN[h, i] += e_IJ.sum(dim=1)
        if i != j:
            sum_HN[h, j] += e_IJ.sum(dim=0)
    return sum_HN.log_()


def _gradient_by_tiles(x_HND: Tensor, a_HN: Tensor) -> Tensor:
    gradient_HND = torch.zeros_like(x_HND)
    for h, i, j, e_IJ in _tiles(x_HND):
        w_IJ = e_IJ.mul_(a_HN[h, i, None] + a_HN[h, j])
        gradient_HND[h, i].addmm_(w_IJ, x_HND[h, j])
        if i != j:
            gradient_HND[h, j].addmm_(w_IJ.T, x_HND[h, i])
    return gradient_HND


def _tiles(x_HND: Tensor) -> Iterator[tuple[int, slice, slice, Tensor]]:
    """E's tiles on and above its diagonal, with the space, the rows and the columns that they are.

    One space after another, for a tile of one is as much as a core's cache holds.
    """
    x_HND = x_HND * LOG2_E**0.5
    slices = [slice(i, i + TILE) for i in range(0, x_HND.shape[1], TILE)]
    for h, x_ND in enumerate(x_HND):
        for n, i in enumerate(slices):
            for j in slices[n:]:
                e_IJ = torch.mm(x_ND[i], x_ND[j].T).exp2_()
                if i == j:
                    e_IJ.fill_diagonal_(0)
                yield h, i, j, e_IJ


def _row_maxima(x_HND: Tensor) -> Tensor:
    return torch.cat([logits_HIN.logsumexp(dim=2) for _, logits_HIN in _strips(x_HND)], dim=1)


def _gradient_by_strips(x_HND: Tensor, log_sum_HN: Tensor, u_HN: Tensor) -> Tensor:
    gradient_HND = torch.zeros_like(x_HND)
    for i, logits_HIN in _strips(x_HND):
        w_HIN = logits_HIN.sub_(log_sum_HN[:, i, None]).exp_().mul_(u_HN[:, i, None])
        gradient_HND[:, i] += w_HIN @ x_HND
        gradient_HND += w_HIN.mT @ x_HND[:, i]
    return gradient_HND


def _strips(x_HND: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Exponents of some rows of all spaces at a time, a row with itself at minus infinity."""
    H, N, _ = x_HND.shape
    height = max(1, (ON_CPU if x_HND.device.type == "cpu" else ELSEWHERE) // (H * N))
    for start in range(0, N, height):
        i = slice(start, min(start + height, N))
        logits_HIN = x_HND[:, i] @ x_HND.mT
        logits_HIN.diagonal(offset=start, dim1=1, dim2=2).fill_(-torch.inf)
        yield i, logits_HIN
