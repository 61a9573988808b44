"""The method AMCL in all forms: heads, the shared temperature network, queues, warnings."""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import amcl
from mtcon_ray.methods.amcl import AMCL
from mtcon_ray.models.encoders.small import Small
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.spec.methods.self_supervised import Form
from tests.losses.test_amcl import rows_of
from tests.methods.cases import make_spec
from tests.plans import plan_of
from tests.problems import problem

FORMS = get_args(Form)
B, D = 4, 3
BATCH = Batch({}, B)
HEADS = ("instance-1", "instance-2", "instance-3")


def make(form: Form, **fields: Any) -> AMCL:
    spec = {"form": form, "dim": D, "hidden": 5, "predictor_hidden": 3, "queue_size": 16}
    known = problem("shape", batch_size=B, head_dim=D)
    return AMCL(AMCL.Spec.model_validate(spec | fields), known).double()


def rows(form: Form) -> dict[str, Tensor]:
    """Returns the rows of every head in this form."""
    return {head: rows_of(form, seed=i) for i, head in enumerate(HEADS)}


@pytest.mark.parametrize("given", [
    {"beta": 0.3, "tau_min": 0.05, "tau_max": 1.5, "top_k": 2, "off_diagonal": 0.2},
    {},  # the settings of the release
])  # fmt: skip
@pytest.mark.parametrize("form", FORMS)
def test_losses_are_the_public_function_s_with_the_spec(form: Form, given: dict[str, Any]) -> None:
    method, z_by_head = make(form, **given), rows(form)
    queues = dict(zip(HEADS, method.queues.rows, strict=True)) if form == "moco" else None
    settings = {"beta": 1e-6 if form == "barlow" else 1e-4, **given}
    losses = method(z_by_head, BATCH).losses
    assert tuple(losses) == HEADS
    for head, z in z_by_head.items():
        net = method.temperature_net
        expected = amcl({head: z}, form=form, temperature_net=net, queue_by_head=queues, **settings)
        torch.testing.assert_close(losses[head], expected)
    assert method.weighting(losses).objective == torch.stack(list(losses.values())).sum()


@pytest.mark.parametrize("form", FORMS)
def test_heads_are_those_of_the_form(form: Form) -> None:
    network = make(form).make_network(Small(Small.Spec(width=4)))
    assert network.names == HEADS
    linear = [m.out_features for m in network.heads[0].modules() if isinstance(m, nn.Linear)]
    assert linear == {"simsiam": [5, 5, D, 3, D], "barlow": [5, 5, D]}.get(form, [32, D])


def test_momentum_and_queue_belong_to_the_form_moco() -> None:
    for form in FORMS:
        method = make(form, teacher_momentum=0.9)
        assert method.momentum == (0.9 if form == "moco" else None)
        assert hasattr(method, "queues") == (form == "moco")
        method.after_step(method(rows(form), BATCH))


def test_columns_may_have_unit_length_before_the_temperature_network() -> None:
    method, z_by_head = make("barlow", unit_columns=True), rows("barlow")
    unit = {head: F.normalize(z, dim=0) for head, z in z_by_head.items()}
    calls = (make("barlow"), z_by_head), (method, z_by_head), (method, unit)
    raw, first, second = (each(z, BATCH).losses["instance-1"] for each, z in calls)
    # Lengths still matter a little: eps is added to the variance of the columns.
    torch.testing.assert_close(first, second, rtol=1e-2, atol=0)
    assert not torch.allclose(first, raw, rtol=0.1)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"tau_min must be below tau_max, got 2.0 and 2.0"):
        AMCL.Spec(tau_min=2).check(problem("shape"))
    with pytest.raises(ValueError, match=r"queue_size must be at least .* the 12 keys .* got 11"):
        AMCL.Spec(form="moco", queue_size=11).check(problem("shape"))
    AMCL.Spec(form="simclr", queue_size=11).check(problem("shape"))


def test_one_negative_per_anchor_is_warned_of() -> None:
    warnings = {form: AMCL.Spec(form=form).warnings() for form in FORMS}
    assert {form for form in FORMS if warnings[form]} == {"simclr", "infonce", "moco"}
    assert "method.top_k must be well above 1" in "".join(warnings["simclr"].values())
    assert AMCL.Spec(top_k=100).warnings() == {}


def test_a_plan_shows_the_warning(tmp_path: Path) -> None:
    plan = plan_of(make_spec("amcl"), tmp_path, ClusterView("here", (NodeKind("node", 2, 0, 1),)))
    assert any("method.top_k" in warning for warning in plan.warnings)
