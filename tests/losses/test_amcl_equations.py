"""AMCL's losses against their equations, written as loops over pairs.

Wang et al. 2023, arXiv:2310.05615; equations are numbered as on the poster at ECCV 2024.
"""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mtcon_ray.losses import TemperatureNet
from mtcon_ray.losses.amcl import Adaptive, adapt_barlow, adapt_moco, adapt_simsiam, adapt_views
from tests.losses.cases import random_rows

repeatedly = settings(deadline=None, derandomize=True, max_examples=15)
items, views, widths = st.integers(2, 5), st.integers(2, 3), st.integers(1, 4)
seeds, betas = st.integers(0, 10_000), st.sampled_from([0.0, 1e-4, 1.0])


class Loops:
    """Terms of eqs. 2.1 to 2.4 for one pair or one anchor at a time."""

    def __init__(self, net: nn.Module, beta: float, k: int, width: int) -> None:
        self.net, self.beta, self.k, self.width = net, beta, k, width

    def tau(self, x: Tensor, y: Tensor) -> float:
        with torch.no_grad():
            score = float(self.net(x) @ self.net(y))
        return 0.05 + (2 - 0.05) / (1 + math.exp(score))

    def omega(self, tau: float) -> float:
        return self.width / 2 * math.log(tau) + 1 / tau

    def anchor(self, z: Tensor, positives: list[Tensor], candidates: list[Tensor]) -> float:
        taus = [self.tau(z, p) for p in positives]
        attract = [
            self.beta * self.omega(t) - float(z @ p) / t
            for p, t in zip(positives, taus, strict=True)
        ]
        hardest = sorted(candidates, key=lambda n: -float(z @ n))[: self.k]
        taus = [self.tau(z, n) for n in hardest]
        repel = [float(z @ n) / t for n, t in zip(hardest, taus, strict=True)]
        paid = math.fsum(map(self.omega, taus)) / len(taus)
        return math.fsum(attract) / len(attract) + math.fsum(repel) / len(repel) - self.beta * paid


@repeatedly
@given(B=items, V=views, D=widths, seed=seeds, k=st.integers(1, 20), beta=betas)
def test_contrastive_forms_are_their_equations(
    B: int, V: int, D: int, seed: int, k: int, beta: float
) -> None:
    """k may exceed the number of candidates; then all of them are used."""
    z, keys = random_rows(2, B, V, D, seed=seed)
    queue = random_rows(5, D, seed=seed + 1)
    torch.manual_seed(seed)
    net = TemperatureNet(D).double()
    simclr = Adaptive(net, beta, 0.05, 2.0, k)
    infonce = Adaptive(net, beta, 0.05, 2.0, k, "infonce")
    loops = Loops(net, beta, k, D)
    rows = [(b, v) for b in range(B) for v in range(V)]
    expected: dict[str, list[float]] = {"simclr": [], "infonce": [], "moco": []}
    for b, v in rows:
        others = [z[r] for r in rows if r != (b, v)]
        own, own_keys = ([x[b, w] for w in range(V) if w != v] for x in (z, keys))
        negatives = [z[r] for r in rows if r[0] != b]
        expected["simclr"].append(loops.anchor(z[b, v], own, negatives))
        expected["infonce"].append(loops.anchor(z[b, v], own, others))
        expected["moco"].append(loops.anchor(z[b, v], own_keys, list(queue)))
    ours = {
        "simclr": adapt_views(z, simclr),
        "infonce": adapt_views(z, infonce),
        "moco": adapt_moco(z, keys, queue, simclr),
    }
    for form, terms in expected.items():
        assert ours[form].loss.item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-9)


@repeatedly
@given(B=items, V=views, D=widths, seed=seeds, beta=betas)
def test_simsiam_and_barlow_forms_are_their_equations(
    B: int, V: int, D: int, seed: int, beta: float
) -> None:
    p, h = random_rows(2, B, V, D, seed=seed)
    torch.manual_seed(seed)
    net, column_net = TemperatureNet(D).double(), TemperatureNet(B).double()
    loops, terms = Loops(net, beta, 1, D), []
    for b in range(B):
        for v in range(V):
            for w in (w for w in range(V) if w != v):
                tau = loops.tau(p[b, v], h[b, w])
                terms.append(-float(p[b, v] @ h[b, w]) / tau + 2 * beta * loops.omega(tau))
    ours = adapt_simsiam(4 * p, 0.5 * h, Adaptive(net, beta, 0.05))
    assert ours.loss.item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-9)

    loops, terms = Loops(column_net, beta, 1, D), []
    hat = (p - p.mean(dim=0)) / (p.var(dim=0, correction=0) + 1e-5).sqrt()
    for v, w in combinations(range(V), 2):
        loss = 0.0
        for i in range(D):
            for j in range(D):
                c = float(hat[:, v, i] @ hat[:, w, j]) / B
                tau = loops.tau(p[:, v, i], p[:, w, j])
                term = (1 - c / tau) ** 2 if i == j else 0.01 * c**2 / tau
                loss += term + beta * loops.omega(tau) * (1 if i == j else -1)
        terms.append(loss)
    ours = adapt_barlow(p, Adaptive(column_net, beta, 0.05, off_diagonal=0.01))
    assert ours.loss.item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-8, abs=1e-9)
