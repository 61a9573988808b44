"""The method CSN: loss, masks and their initial values, invalid settings."""

from typing import Any

import pytest
import torch
from torch import nn

from mtcon_ray.base import metrics
from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.csn import CSN
from mtcon_ray.models.encoders.small import Small
from tests.losses.cases import VALUES
from tests.losses.test_triplet import BETA, case_e
from tests.problems import problem

TASKS = ("shape", "colour")


def method_of(*, dim: int = 4, tasks: tuple[str, ...] = TASKS, **fields: Any) -> CSN:
    spec = CSN.Spec.model_validate(fields)
    made = problem(*tasks, head_dim=dim)
    spec.check(made)
    return CSN(spec, made)


def batch_of(*condition: int) -> Batch:
    labels = {task: torch.zeros(len(condition), dtype=torch.int64) for task in TASKS}
    return Batch(labels, len(condition), condition=torch.tensor(condition))


@pytest.mark.parametrize("condition", [0, 1])
def test_loss_of_case_e(condition: int) -> None:
    """The hinge, both regularisers and their sum have the reference values."""
    known = VALUES[f"E_csn_c{condition}"]
    method = method_of().double()
    with torch.no_grad():
        method.beta.copy_(torch.tensor(BETA, dtype=torch.float64))
    z, _ = case_e()
    output = method({"embedding": z}, batch_of(condition))
    losses = output.losses
    assert losses["triplet"].item() == pytest.approx(known["hinge"], rel=1e-6)
    assert losses["embedding"].item() == pytest.approx(5e-3 * known["embed_term"], rel=1e-6)
    assert losses["mask"].item() == pytest.approx(5e-4 * known["mask_term"], rel=1e-6)
    total = method.weighting(losses).objective
    assert total.item() == pytest.approx(known["total"], rel=1e-6)
    right = known["d_far"] > known["d_close"]
    assert {k: v.item() for k, v in output.gauges().items()} == {metrics.TRIPLET_ACCURACY: right}


def test_conditions_count_the_tasks_that_have_classes() -> None:
    kinds = {"price": "number", "shape": "classes", "tags": "set", "colour": "classes"}
    method = CSN(CSN.Spec(), problem(*kinds, kinds=kinds))
    assert method.conditions == TASKS
    assert method.beta.shape == (2, 4)


def test_learned_masks_start_around_nine_tenths_and_follow_the_seed() -> None:
    """Normal with mean 0.9 and deviation 0.7, whatever the state of the global generator."""
    torch.manual_seed(1)
    beta = method_of(dim=4000).beta
    assert beta.mean().item() == pytest.approx(0.9, abs=0.04)
    assert beta.std().item() == pytest.approx(0.7, abs=0.04)
    torch.manual_seed(2)
    assert torch.equal(method_of(dim=4000).beta, beta)
    other = CSN(CSN.Spec(), problem(*TASKS, head_dim=4000, seed=1))
    assert not torch.equal(other.beta, beta)


def test_the_embedding_is_linear_and_probed() -> None:
    network = method_of(dim=7).make_network(Small(Small.Spec(width=4))).eval()
    assert network.features(torch.randn(2, 3, 16, 16)).shape == (2, 7)
    (head,) = network.heads
    assert isinstance(head, nn.Linear)


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_triplets must be at least .* got 5 and 6"):
        method_of(num_triplets=5)
    with pytest.raises(ValueError, match=r"data\.tasks must have a column of classes"):
        CSN.Spec().check(problem("price", kinds={"price": "number"}))
    for bad in ({"margin": 0}, {"num_triplets": 0}, {"mask_penalty": -1}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            CSN.Spec.model_validate(bad)
