"""MTCon: one head per task, weightings, temperatures, tasks of both kinds. SupCon: one task."""

import math

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses import multisupcon, small_batch, supcon
from mtcon_ray.losses.weighting import LearnedTemperature
from mtcon_ray.methods.mtcon import MTCon
from mtcon_ray.methods.supcon import SupCon
from tests.losses.cases import TASKS, VALUES, case_a, random_rows
from tests.problems import problem

KINDS = {"shape": "classes", "looks": "set"}


def rows_and_batch() -> tuple[dict[str, Tensor], Batch]:
    z_by_head, labels = case_a(*TASKS)
    return z_by_head, Batch(labels, num_items=4)


def test_variance_in_the_temperature_has_the_values_of_rows_and_batch() -> None:
    method = MTCon(MTCon.Spec(temperature=0.1, weighting="temperature"), problem(*TASKS)).double()
    assert isinstance(method.weighting, LearnedTemperature)
    with torch.no_grad():
        method.weighting.log_variance.copy_(torch.tensor([1.5, 1.0]).double().log())
    losses = method(*rows_and_batch()).losses
    known = VALUES["A_tempform_t1_sigma2=1.5"]["sup_tau_scaled"]
    assert losses["shape"].item() == pytest.approx(known, rel=1e-6)
    plain = VALUES["A_tau0.1"]["supcon_t2_mean"]
    assert losses["colour"].item() == pytest.approx(plain, rel=1e-6)
    objective = method.weighting(losses).objective
    assert objective.item() == pytest.approx(known + plain + math.log(1.5), rel=1e-6)
    (gradient_T,) = torch.autograd.grad(objective, method.weighting.log_variance)
    assert gradient_T[0] != 1


def test_supcon_trains_on_its_task_alone() -> None:
    method = SupCon(SupCon.Spec(task="colour", temperature=0.3), problem(*TASKS))
    z_by_head, batch = rows_and_batch()
    losses = method({"colour": z_by_head["colour"]}, batch).losses
    assert method.heads == ("colour",)
    expected = supcon(z_by_head["colour"], batch.labels["colour"], temperature=0.3)
    assert losses == {"colour": expected}


def mixed() -> tuple[dict[str, Tensor], Batch]:
    """Returns six items in two views, in two heads: classes and label sets."""
    heads = dict(zip(KINDS, random_rows(2, 6, 2, 4, seed=0), strict=True))
    sets = (random_rows(6, 5, seed=1) > 0).to(torch.uint8)
    return heads, Batch({"shape": torch.tensor([0, 1, 0, 2, 1, -1])}, 6, {"looks": sets})


def test_heads_of_different_kinds_have_their_own_relations() -> None:
    z_by_head, batch = mixed()
    spec = MTCon.Spec(temperature=0.2, threshold=0.4)
    losses = MTCon(spec, problem(*KINDS, kinds=KINDS))(z_by_head, batch).losses
    looks = z_by_head["looks"], batch.label_sets["looks"]
    expected = {
        "shape": supcon(z_by_head["shape"], batch.labels["shape"], temperature=0.2),
        "looks": multisupcon(*looks, temperature=0.2, threshold=0.4),
    }
    assert losses == expected
    assert all(loss > 0.1 for loss in losses.values())


@pytest.mark.parametrize("most_pairs", [0, 2**20])
@pytest.mark.parametrize("weighting", ["learned", "temperature"])
def test_a_batch_without_labels_of_a_kind_leaves_its_log_variance_alone(
    weighting: str, most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batch, "MOST_PAIRS", most_pairs)
    z_by_head, batch = mixed()
    spec = MTCon.Spec.model_validate({"weighting": weighting})
    method = MTCon(spec, problem(*KINDS, kinds=KINDS))
    for moves in (True, False):
        objective = method.weighting(method(z_by_head, batch).losses).objective
        (gradient_T,) = torch.autograd.grad(objective, list(method.weighting.parameters()))
        assert gradient_T.ne(0).tolist() == [moves] * 2
        batch.labels["shape"].fill_(-1)
        batch.label_sets["looks"].fill_(255)


def test_a_task_may_have_its_own_temperature() -> None:
    z_by_head, batch = rows_and_batch()
    spec = MTCon.Spec(temperature=0.5, temperature_by_task={"colour": 1.0})
    losses = MTCon(spec, problem(*TASKS))(z_by_head, batch).losses
    assert losses["shape"].item() == pytest.approx(VALUES["A_tau0.5"]["supcon_t1_mean"], rel=1e-6)
    assert losses["colour"].item() == pytest.approx(VALUES["A_tau1.0"]["supcon_t2_mean"], rel=1e-6)
