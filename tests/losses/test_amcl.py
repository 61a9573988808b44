"""AMCL's losses: reference values, gradients, bounds of the temperatures, invalid input."""

import math
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.losses import TemperatureNet, amcl
from mtcon_ray.losses.amcl import Adaptive, adapt, omega
from mtcon_ray.spec.methods.self_supervised import Form
from tests.losses.cases import VALUES, random_rows, simsiam_views, two_views, unit

FORMS = get_args(Form)
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


@pytest.mark.parametrize("key", [key for key in VALUES["F_amcl_nt"] if key.endswith("eq2.1")])
def test_simclr_form_has_the_values_of_case_f(key: str) -> None:
    beta, k, _ = key.removeprefix("beta").split("_")
    options: dict[str, Any] = {"top_k": int(k[1:])}
    for z_by_head in ({"a": two_views()}, {"a": two_views(), "b": two_views()}):
        loss = amcl(z_by_head, form="simclr", temperature_net=identity, beta=float(beta), **options)
        expected = VALUES["F_amcl_nt"][key] * len(z_by_head)
        assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_other_forms_have_the_values_of_case_f() -> None:
    def value(form: Form, z: Tensor, **options: Any) -> float:
        return amcl({"a": z}, form=form, temperature_net=identity, beta=1e-4, **options).item()

    known = pytest.approx(VALUES["F_amcl_infonce_beta1e-4"], rel=1e-6)
    assert value("infonce", two_views()) == known
    known = pytest.approx(VALUES["F_amcl_simsiam_beta1e-4"], rel=1e-6)
    assert value("simsiam", torch.cat(simsiam_views(), dim=2)) == known
    known = pytest.approx(VALUES["F_amcl_moco_beta1e-4_k1_eq2.1"], rel=1e-6)
    # The reference value has the rows of H as its only anchors, each with its row of G as key.
    query, key = unit("H")[:, None], unit("G")[:, None]
    both = torch.cat([torch.cat([query, query], 1), torch.cat([key, key], 1)], 2)
    assert value("moco", both, queue_by_head={"a": unit("queue")}) == known


@pytest.mark.parametrize("score", VALUES["F_tau_examples"])
def test_temperature_has_the_values_of_case_f(score: str) -> None:
    tau = Adaptive(identity).temperature(torch.tensor(float(score), dtype=torch.float64))
    assert tau.item() == pytest.approx(VALUES["F_tau_examples"][score], rel=1e-6)


def test_omega_has_the_values_of_case_f() -> None:
    known = VALUES["F_omega"]
    tau = torch.tensor([2 / 128, 0.1, 1, 2, 1e-5], dtype=torch.float64)
    expected = [known[f"d128_{key}"] for key in ("at_min", "tau0_1", "tau1", "tau2", "tau1e5")]
    assert omega(tau, 128).tolist() == pytest.approx(expected, rel=1e-6)
    assert known["argmin_128"] == 2 / 128
    least = tau[:1].clone().requires_grad_()
    (slope,) = torch.autograd.grad(omega(least, 128), least)
    assert slope.item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("form", ["simsiam", "moco"])
def test_targets_get_no_gradient(form: Form) -> None:
    z = rows_of(form).requires_grad_()
    (gradient,) = torch.autograd.grad(total(z, form), z)
    assert (gradient[:, :, :3] != 0).any()
    assert (gradient[:, :, 3:] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e3, 1e18])
@pytest.mark.parametrize("form", FORMS)
def test_temperatures_stay_in_their_bounds(form: Form, scale: float, dtype: torch.dtype) -> None:
    """Neither the loss nor its gradient overflows, whatever the scores."""
    net, z = phi(form, scale).to(dtype), rows_of(form).to(dtype).requires_grad_()
    adaptive = Adaptive(net, beta=1.0, form=form)
    loss, temperatures = adapt(z, adaptive, queue=unit("queue").to(dtype))
    assert temperatures.min() >= 1e-5 * (1 - 1e-6)
    assert temperatures.max() <= 2 * (1 + 1e-6)
    assert not temperatures.requires_grad
    assert loss.isfinite()
    gradients = torch.autograd.grad(loss, [z, *net.parameters()])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_bad_arguments_raise() -> None:
    z = two_views()
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
    z = two_views()
    z[1, 0, 2] = torch.nan
    with pytest.raises(ValueError, match=r"z_by_head\['b'\] must be finite, got 1 of 24 entries"):
        amcl({"a": two_views(), "b": z}, form="simclr", temperature_net=identity, beta=1e-4)
    rows, queue = rows_of("moco"), unit("queue")
    queue[2, 1] = torch.inf
    queues = {"a": unit("queue"), "b": queue}
    options: dict[str, Any] = {"temperature_net": identity, "beta": 1e-4}
    with pytest.raises(ValueError, match=r"queue_by_head\['b'\] must be finite, got 1 of 15 entr"):
        amcl({"a": rows, "b": rows}, form="moco", queue_by_head=queues, **options)
    with pytest.raises(ValueError, match="z_by_head must hold at least one head, got none"):
        amcl({}, form="simclr", temperature_net=identity, beta=1e-4)
