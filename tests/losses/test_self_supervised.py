"""Self-supervised losses: reference values, equations as loops, gradients."""

import math
from statistics import fmean

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor

from mtcon_ray.losses.self_supervised import barlow_twins, cross_correlations, moco, simsiam
from tests.losses.cases import VALUES, random_rows, raw, unit

repeatedly = settings(deadline=None, derandomize=True, max_examples=30)
items, views, widths = st.integers(2, 5), st.integers(2, 3), st.integers(1, 5)
seeds, temperatures = st.integers(0, 10_000), st.floats(-2, 1).map(lambda e: 10.0**e)


def dot(x: Tensor, y: Tensor) -> float:
    return math.fsum(a * b for a, b in zip(x.tolist(), y.tolist(), strict=True))


@pytest.mark.parametrize("tau", ["0.07", "0.1", "0.2", "0.5"])
def test_moco_has_the_values_of_case_d(tau: str) -> None:
    query, key = (unit(name)[:, None].expand(-1, 2, -1) for name in "HG")
    loss = moco(query, key, unit("queue"), temperature=float(tau))
    assert loss.item() == pytest.approx(VALUES[f"D_moco_tau{tau}"], rel=1e-6)


def test_barlow_twins_has_the_values_of_case_d() -> None:
    z, known = torch.stack([raw("H"), raw("G")], dim=1), VALUES["D_barlow"]
    # Columns so long that the eps of the variance, which the reference values lack, is nothing.
    assert barlow_twins(1e6 * z).item() == pytest.approx(known["biased"], rel=1e-6)
    (c_DD,) = cross_correlations(1e6 * z)
    expected = torch.tensor(known["C_biased"], dtype=torch.float64)
    torch.testing.assert_close(c_DD, expected, rtol=1e-6, atol=1e-12)


def test_simsiam_has_the_value_of_case_d() -> None:
    h, g = raw("H"), raw("G")
    prediction, projection = torch.stack([h, g.flip(0)], dim=1), torch.stack([h.flip(0), g], dim=1)
    assert simsiam(prediction, projection).item() == pytest.approx(VALUES["D_simsiam"], rel=1e-6)


@repeatedly
@given(B=items, V=views, D=widths, seed=seeds)
def test_simsiam_is_its_equation_and_knows_no_lengths(B: int, V: int, D: int, seed: int) -> None:
    p, h = random_rows(2, B, V, D, seed=seed)
    terms = [-dot(p[b, v], h[b, w]) for b in range(B) for v in range(V) for w in range(V) if w != v]
    expected = pytest.approx(fmean(terms), rel=1e-9, abs=1e-9)
    assert simsiam(p, h).item() == expected
    assert simsiam(3 * p, 0.2 * h).item() == expected


@repeatedly
@given(B=items, V=views, D=widths, seed=seeds)
def test_barlow_twins_is_its_equation(B: int, V: int, D: int, seed: int) -> None:
    z = random_rows(B, V, D, seed=seed)
    hat = (z - z.mean(dim=0)) / (z.var(dim=0, correction=0) + 1e-5).sqrt()
    terms = []
    for v in range(V):
        for w in range(v):
            c = [[dot(hat[:, v, i], hat[:, w, j]) / B for j in range(D)] for i in range(D)]
            on = math.fsum((1 - c[i][i]) ** 2 for i in range(D))
            off = math.fsum(c[i][j] ** 2 for i in range(D) for j in range(D) if i != j)
            terms.append(on + 0.01 * off)
    expected = pytest.approx(fmean(terms), rel=1e-9, abs=1e-9)
    assert barlow_twins(z, off_diagonal=0.01).item() == expected


def test_targets_get_no_gradient() -> None:
    query, key, queue = (random_rows(4, 2, 3, seed=s).requires_grad_() for s in range(3))
    (moco(query, key, queue[:, 0], temperature=0.1) + simsiam(query, key)).backward()
    assert query.grad is not None
    assert key.grad is queue.grad is None
