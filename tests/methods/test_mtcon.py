"""MTCon: one head per task, weighed by what it learns."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import nt_xent, supcon
from mtcon_ray.losses.calibrated import CalibratedVariance
from mtcon_ray.losses.weighting import EqualWeights, LearnedTemperature, LearnedVariance
from mtcon_ray.methods.mtcon import MTCon
from tests.problems import problem

VALUES = json.loads((Path(__file__).parents[1] / "unit_values.json").read_text())
TASKS = ("shape", "colour")


def case_a() -> tuple[dict[str, Tensor], Batch]:
    z_by_head, labels = {}, {}
    for i, task in enumerate(TASKS):
        degrees_VB = VALUES["A"]["angles_by_head"][i]
        angle_BV = torch.tensor(degrees_VB, dtype=torch.float64).T.deg2rad()
        z_by_head[task] = torch.stack([angle_BV.cos(), angle_BV.sin()], dim=2)
        labels[task] = torch.tensor(VALUES["A"]["labels_by_task"][i])
    return z_by_head, Batch(labels, num_items=4)


@pytest.mark.parametrize("tau", ["0.1", "0.5", "1.0"])
def test_equal_weights_have_the_values_of_case_a(tau: str) -> None:
    method = MTCon(MTCon.Spec(temperature=float(tau), weighting="equal"), problem(*TASKS))
    known = VALUES[f"A_tau{tau}"]
    losses = method(*case_a())
    assert losses["shape"].item() == pytest.approx(known["supcon_t1_mean"], rel=1e-6)
    assert losses["colour"].item() == pytest.approx(known["supcon_t2_mean"], rel=1e-6)
    objective = method.weighting(losses).objective
    assert objective.item() == pytest.approx(known["mtcon_s_mean"], rel=1e-6)


def test_learned_weights_have_the_values_of_case_a() -> None:
    method = MTCon(MTCon.Spec(temperature=0.1), problem(*TASKS)).double()
    assert isinstance(method.weighting, LearnedVariance)
    with torch.no_grad():
        method.weighting.log_variance.copy_(torch.tensor([0.5, -0.25]))
    known = VALUES["A_weighted_s=(0.5, -0.25)"]
    objective = method.weighting(method(*case_a())).objective
    objective.backward()
    assert objective.item() == pytest.approx(known["mtcon"], rel=1e-6)
    assert method.weighting.log_variance.grad is not None
    assert method.weighting.log_variance.grad.tolist() == pytest.approx(known["dL_ds"], rel=1e-6)


def test_the_spec_chooses_the_weighting() -> None:
    assert isinstance(MTCon(MTCon.Spec(weighting="equal"), problem(*TASKS)).weighting, EqualWeights)
    calibrated = MTCon(MTCon.Spec(weighting="calibrated"), problem(*TASKS)).weighting
    assert isinstance(calibrated, CalibratedVariance)
    for normalise in (False, True):
        weighting = MTCon(MTCon.Spec(normalise_weights=normalise), problem(*TASKS)).weighting
        assert isinstance(weighting, LearnedVariance)
        assert weighting.normalise is normalise


def test_variance_in_the_temperature_has_the_values_of_case_a() -> None:
    method = MTCon(MTCon.Spec(temperature=0.1, weighting="temperature"), problem(*TASKS)).double()
    assert isinstance(method.weighting, LearnedTemperature)
    with torch.no_grad():
        method.weighting.log_variance.copy_(torch.tensor([1.5, 1.0]).double().log())
    losses = method(*case_a())
    known = VALUES["A_tempform_t1_sigma2=1.5"]["sup_tau_scaled"]
    assert losses["shape"].item() == pytest.approx(known, rel=1e-6)
    plain = VALUES["A_tau0.1"]["supcon_t2_mean"]
    assert losses["colour"].item() == pytest.approx(plain, rel=1e-6)
    objective = method.weighting(losses).objective
    objective.backward()
    assert objective.item() == pytest.approx(known + plain + math.log(1.5), rel=1e-6)
    gradient = method.weighting.log_variance.grad
    assert gradient is not None
    assert gradient[0] != 1


def test_the_spec_chooses_what_a_missing_label_means() -> None:
    z_by_head, batch = case_a()
    batch.labels["shape"][:] = -1
    skipped = MTCon(MTCon.Spec(temperature=0.5), problem(*TASKS))(z_by_head, batch)
    kept = MTCon(MTCon.Spec(temperature=0.5, missing="self_only"), problem(*TASKS))(
        z_by_head, batch
    )
    assert skipped["shape"].item() == 0
    assert kept["shape"].item() == pytest.approx(
        nt_xent(z_by_head["shape"], temperature=0.5).item(), rel=1e-12
    )
    expected = supcon(z_by_head["colour"], batch.labels["colour"], temperature=0.5)
    assert skipped["colour"] == kept["colour"] == expected
