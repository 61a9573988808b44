"""The logsumexp of every row over all other rows, and its gradient, in linear memory.

    logsumexp_i = log sum over a != i of exp(z_i.z_a / t),   t the temperature

for H spaces of N rows each. The [N, N] exponentials are computed in square tiles, used and
discarded, and computed again for the gradient. They are symmetric, so only tiles on and above the
diagonal are computed. A gradient u on logsumexp gives the rows the gradient

    W z / t,   W_ij = u_i P_ij + u_j P_ji,   P_ij = exp(z_i.z_j / t - logsumexp_i),  P_ii = 0.

If all exponents fit the dtype's range, P_ij = E_ij exp(-logsumexp_i) with a symmetric E. On a CPU
the values are checked. On a GPU reading them would be a device synchronisation. There, and at very
small temperatures on a CPU, every row is shifted by its own maximum, in strips of rows.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

# A tile is as much as a core's cache holds: 1 MiB in float32.
TILE = 512
# Elements of a strip: 4 MiB in float32 for a CPU's cache, 256 MiB to keep a GPU busy.
ON_CPU, ELSEWHERE = 2**20, 2**26
# exp(x) = exp2(LOG2_E x), for which torch takes a third of the time on a CPU.
LOG2_E = 1 / math.log(2)
# Exponents up to this size, in nats of either sign, leave range for their sums and for gradients.
ROOM = {torch.float32: 65.0, torch.float64: 600.0}


def log_sums(z_HND: Tensor, inverse_H: Tensor) -> Tensor:
    """Returns every row's logsumexp, [H, N], in float32 or float64, for N of at least 2."""
    x_HND = z_HND * inverse_H.sqrt()[:, None, None]
    if not exponents_fit(x_HND.square().sum(dim=2)):
        return torch.cat([logits_HIN.logsumexp(dim=2) for _, logits_HIN in _strips(x_HND)], dim=1)
    sum_HN = x_HND.new_zeros(x_HND.shape[:2])
    for h, i, j, e_IJ in _tiles(x_HND):
        sum_HN[h, i] += e_IJ.sum(dim=1)
        if i != j:
            sum_HN[h, j] += e_IJ.sum(dim=0)
    return sum_HN.log_()


def rows_gradient(z_HND: Tensor, inverse_H: Tensor, logsumexp_HN: Tensor, u_HN: Tensor) -> Tensor:
    """Returns the gradient on z_HND, W z / t as above, of a gradient u_HN on logsumexp_HN."""
    root_H11 = inverse_H.sqrt()[:, None, None]
    x_HND = z_HND * root_H11
    gradient_HND = torch.zeros_like(x_HND)
    if exponents_fit(x_HND.square().sum(dim=2)):
        a_HN = u_HN * torch.exp(-logsumexp_HN)
        for h, i, j, e_IJ in _tiles(x_HND):
            w_IJ = e_IJ.mul_(a_HN[h, i, None] + a_HN[h, j])
            gradient_HND[h, i].addmm_(w_IJ, x_HND[h, j])
            if i != j:
                gradient_HND[h, j].addmm_(w_IJ.T, x_HND[h, i])
    else:
        for i, logits_HIN in _strips(x_HND):
            w_HIN = logits_HIN.sub_(logsumexp_HN[:, i, None]).exp_().mul_(u_HN[:, i, None])
            gradient_HND[:, i] += w_HIN @ x_HND
            gradient_HND += w_HIN.mT @ x_HND[:, i]
    return gradient_HND * root_H11


def exponents_fit(square_HN: Tensor) -> bool:
    """Returns True if all x_i.x_j are known to fit the dtype's range.

    square_HN are all x_i.x_i. By the Cauchy-Schwarz inequality no x_i.x_j exceeds the largest.
    Returns False for nan and inf.
    """
    return square_HN.device.type == "cpu" and bool(square_HN.max().item() <= ROOM[square_HN.dtype])


def _tiles(x_HND: Tensor) -> Iterator[tuple[int, slice, slice, Tensor]]:
    """Yields the space, rows, columns and values of E's tiles on and above its diagonal.

    Spaces are processed in turn, because a tile of a single space fills a core's cache.
    """
    # Both factors of each product carry the root, so the exponents are in bits for exp2.
    x_HND = x_HND * LOG2_E**0.5
    slices = [slice(i, i + TILE) for i in range(0, x_HND.shape[1], TILE)]
    for h, x_ND in enumerate(x_HND):
        for n, i in enumerate(slices):
            for j in slices[n:]:
                e_IJ = torch.mm(x_ND[i], x_ND[j].T).exp2_()
                if i == j:
                    e_IJ.fill_diagonal_(0)
                yield h, i, j, e_IJ


def _strips(x_HND: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yields the logits of some rows of all spaces at a time, minus infinity on the diagonal."""
    H, N, _ = x_HND.shape
    height = max(1, (ON_CPU if x_HND.device.type == "cpu" else ELSEWHERE) // (H * N))
    for start in range(0, N, height):
        i = slice(start, min(start + height, N))
        logits_HIN = x_HND[:, i] @ x_HND.mT
        logits_HIN.diagonal(offset=start, dim1=1, dim2=2).fill_(-torch.inf)
        yield i, logits_HIN
