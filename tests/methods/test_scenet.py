"""The method SCE-Net: loss, concepts, and the inputs of their weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.base import metrics
from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.scenet import SCENet
from tests.losses.cases import VALUES
from tests.losses.test_triplet import BETA, case_e
from tests.problems import problem

TASKS = ("shape", "colour")


def method_of(**fields: Any) -> SCENet:
    made = problem(*TASKS)
    spec = SCENet.Spec.model_validate(fields)
    spec.check(made)
    return SCENet(spec, made)


def batch_of(size: int) -> Batch:
    labels = {task: torch.zeros(size, dtype=torch.int64) for task in TASKS}
    return Batch(labels, size, condition=torch.zeros(size, dtype=torch.int64))


def embeddings(size: int = 5) -> Tensor:
    return torch.randn(size, 3, 4, generator=torch.Generator().manual_seed(0))


def test_loss_of_case_e() -> None:
    """The bias of the last layer alone gives the weights 0.7 and 0.3."""
    known = VALUES["E_sce"]
    method = method_of().double()
    with torch.no_grad():
        method.beta.copy_(torch.tensor(BETA, dtype=torch.float64))
        last = method.branch[-1]
        assert isinstance(last, nn.Linear)
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.7, 0.3], dtype=torch.float64).log())
    z, _ = case_e()
    distances = method.distances(z, batch_of(1))
    assert distances[0].tolist() == pytest.approx([known["d_far"], known["d_close"]], rel=1e-6)
    output = method({"embedding": z}, batch_of(1))
    losses = output.losses
    assert losses["triplet"].item() == known["hinge"]
    embed = VALUES["E_csn_c0"]["embed_term"]
    assert losses["embedding"].item() == pytest.approx(5e-3 * embed, rel=1e-6)
    assert losses["mask"].item() == pytest.approx(5e-4 * (1.6 + 2.1) / 2, rel=1e-6)
    assert output.gauges()[metrics.TRIPLET_ACCURACY].item() == 1


def test_weights_are_the_equation_written_out() -> None:
    """softmax(W2 ReLU(W1 [x; y; z] + b1) + b2) of unit embeddings, the same for both distances."""
    method = method_of(num_concepts=3)
    z = embeddings()
    first, _, second = method.branch
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    assert (first.in_features, first.out_features, second.out_features) == (12, 32, 3)
    for b, weight_2K in enumerate(method.concept_weights(z)):
        given = torch.cat([row / row.norm() for row in z[b]])
        hidden = (first.weight @ given + first.bias).clamp(min=0)
        expected = (second.weight @ hidden + second.bias).softmax(dim=0)
        torch.testing.assert_close(weight_2K, expected.expand(2, 3))


def test_a_start_follows_the_seed_alone() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = method_of().state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again = method_of().state_dict()
    other = SCENet(SCENet.Spec(), problem(*TASKS, seed=1)).state_dict()
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not any(torch.equal(one[key], other[key]) for key in one)
