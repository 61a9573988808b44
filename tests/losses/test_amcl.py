"""AMCL's losses: equations as loops, gradients, bounds of the temperatures, invalid input.

Wang et al. 2023, arXiv:2310.05615; equations are numbered as on the poster at ECCV 2024.
"""

import math
from itertools import combinations
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

from mtcon_ray.losses import TemperatureNet, amcl
from mtcon_ray.losses.amcl import Adaptive, adapt
from mtcon_ray.spec.methods.self_supervised import Form
from tests.losses.cases import VALUES, random_rows, unit

repeatedly = settings(deadline=None, derandomize=True, max_examples=15)
items, views, widths = st.integers(2, 5), st.integers(2, 3), st.integers(1, 4)
seeds, betas = st.integers(0, 10_000), st.sampled_from([0.0, 1e-4, 1.0])
identity = nn.Identity()


def rows_of(form: Form, seed: int = 0) -> Tensor:
    """Returns the rows of a head of this form for four items in two views."""
    z = random_rows(4, 2, 3, seed=seed)
    if form in ("simsiam", "moco"):
        return torch.cat([z, random_rows(4, 2, 3, seed=seed + 1)], dim=2)
    return z * 3 if form == "barlow" else z


def phi(form: Form, scale: float = 1.0) -> nn.Module:
    """Returns a temperature network of the width of the rows of `rows_of`."""
    torch.manual_seed(1)
    net = TemperatureNet(4 if form == "barlow" else 3, hidden=5).double()
    with torch.no_grad():
        net.get_parameter("2.weight").mul_(scale)
    return net


def total(z: Tensor, form: Form, *, queue: Tensor | None = None, **options: Any) -> Tensor:
    queues = {"head": unit("queue") if queue is None else queue}
    chosen: dict[str, Any] = {"temperature_net": phi(form), "beta": 1e-4, "tau_min": 0.05}
    return amcl({"head": z}, form=form, queue_by_head=queues, **{**chosen, **options})


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
        pairs = zip(positives, taus, strict=True)
        attract = [self.beta * self.omega(t) - float(z @ p) / t for p, t in pairs]
        hardest = sorted(candidates, key=lambda n: -float(z @ n))[: self.k]
        taus = [self.tau(z, n) for n in hardest]
        repel = [float(z @ n) / t for n, t in zip(hardest, taus, strict=True)]
        paid = math.fsum(map(self.omega, taus)) / len(taus)
        return math.fsum(attract) / len(attract) + math.fsum(repel) / len(repel) - self.beta * paid


@repeatedly
@given(B=items, V=views, D=widths, seed=seeds, k=st.integers(1, 20), beta=betas)
def test_contrastive_equations(B: int, V: int, D: int, seed: int, k: int, beta: float) -> None:
    """k may exceed the number of candidates; then all of them are used."""
    z, keys = random_rows(2, B, V, D, seed=seed)
    queue = random_rows(5, D, seed=seed + 1)
    torch.manual_seed(seed)
    net = TemperatureNet(D).double()
    loops = Loops(net, beta, k, D)
    rows = [(b, v) for b in range(B) for v in range(V)]
    expected: dict[Form, list[float]] = {"simclr": [], "infonce": [], "moco": []}
    for b, v in rows:
        others = [z[r] for r in rows if r != (b, v)]
        own, own_keys = ([x[b, w] for w in range(V) if w != v] for x in (z, keys))
        expected["simclr"].append(loops.anchor(z[b, v], own, [z[r] for r in rows if r[0] != b]))
        expected["infonce"].append(loops.anchor(z[b, v], own, others))
        expected["moco"].append(loops.anchor(z[b, v], own_keys, list(queue)))
    for form, terms in expected.items():
        z_BVD = torch.cat([z, keys], dim=2) if form == "moco" else z
        ours = adapt(z_BVD, Adaptive(net, beta, 0.05, 2.0, k, form), queue=queue)
        assert ours.item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-9)


@repeatedly
@given(B=items, V=views, D=widths, seed=seeds, beta=betas)
def test_simsiam_and_barlow_equations(B: int, V: int, D: int, seed: int, beta: float) -> None:
    p, h = random_rows(2, B, V, D, seed=seed)
    torch.manual_seed(seed)
    net, column_net = TemperatureNet(D).double(), TemperatureNet(B).double()
    loops, terms = Loops(net, beta, 1, D), []
    for b in range(B):
        for v in range(V):
            for w in (w for w in range(V) if w != v):
                tau = loops.tau(p[b, v], h[b, w])
                terms.append(-float(p[b, v] @ h[b, w]) / tau + 2 * beta * loops.omega(tau))
    ours = adapt(torch.cat([4 * p, 0.5 * h], dim=2), Adaptive(net, beta, 0.05, form="simsiam"))
    assert ours.item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-9)

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
    ours = adapt(p, Adaptive(column_net, beta, 0.05, form="barlow", off_diagonal=0.01))
    assert ours.item() == pytest.approx(math.fsum(terms) / len(terms), rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("score", VALUES["F_tau_examples"])
def test_temperature_has_the_values_of_case_f(score: str) -> None:
    tau = Adaptive(identity).temperature(torch.tensor(float(score), dtype=torch.float64))
    assert tau.item() == pytest.approx(VALUES["F_tau_examples"][score], rel=1e-6)


@pytest.mark.parametrize("form", ["simsiam", "moco"])
def test_targets_get_no_gradient(form: Form) -> None:
    z = rows_of(form).requires_grad_()
    (gradient,) = torch.autograd.grad(total(z, form), z)
    assert (gradient[:, :, :3] != 0).any()
    assert (gradient[:, :, 3:] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3, 1e18])
@pytest.mark.parametrize("form", get_args(Form))
def test_losses_are_finite_for_all_scores(form: Form, scale: float, dtype: torch.dtype) -> None:
    """Neither the loss nor its gradient overflows."""
    net, z = phi(form, scale).to(dtype), rows_of(form).to(dtype).requires_grad_()
    loss = adapt(z, Adaptive(net, beta=1.0, form=form), queue=unit("queue").to(dtype))
    assert loss.isfinite()
    gradients = torch.autograd.grad(loss, [z, *net.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_bad_arguments_raise() -> None:
    z = rows_of("simclr")
    with pytest.raises(ValueError, match=r"(?s)form.*should be 'simclr'.*input_value='byol'"):
        total(z, "byol")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"tau_min must be below tau_max, got 0\.5 and 0\.5"):
        total(z, "simclr", tau_min=0.5, tau_max=0.5)
    for name, value in (("tau_min", 0), ("tau_max", math.inf), ("beta", -1e-9), ("top_k", 0)):
        wrong: dict[str, Any] = {name: value}
        with pytest.raises(ValueError, match=name):
            total(z, "simclr", **wrong)
    with pytest.raises(ValueError, match="z must hold at least 2"):
        total(z[:1], "simclr")
    with pytest.raises(ValueError, match=r"z must have shape \[B, V, 2D\] in this form, got .*3\]"):
        total(z, "moco")
    with pytest.raises(ValueError, match=r"z must have shape \[B, V, D\], got \[4, 3\]"):
        total(unit("H"), "simsiam")
    with pytest.raises(ValueError, match="queue_by_head must hold a queue"):
        amcl({"a": rows_of("moco")}, form="moco", temperature_net=identity, beta=0)
    with pytest.raises(ValueError, match=r"queue must have shape \[K, 3\], got \[2, 4\]"):
        adapt(rows_of("moco"), Adaptive(identity, form="moco"), queue=torch.ones(2, 4))


def test_embeddings_that_are_not_finite_are_named_with_their_head() -> None:
    z = rows_of("simclr")
    z[1, 0, 2] = torch.nan
    with pytest.raises(ValueError, match=r"z_by_head\['b'\] must be finite, got 1 of 24 entries"):
        amcl({"a": rows_of("simclr"), "b": z}, form="simclr", temperature_net=identity, beta=1e-4)
    rows, queue = rows_of("moco"), unit("queue")
    queue[2, 1] = torch.inf
    queues = {"a": unit("queue"), "b": queue}
    options: dict[str, Any] = {"temperature_net": identity, "beta": 1e-4}
    with pytest.raises(ValueError, match=r"queue_by_head\['b'\] must be finite, got 1 of 15 entr"):
        amcl({"a": rows, "b": rows}, form="moco", queue_by_head=queues, **options)
    with pytest.raises(ValueError, match="z_by_head must hold at least one head, got none"):
        amcl({}, form="simclr", temperature_net=identity, beta=1e-4)
