"""The methods CSN and SCE-Net: losses, masks and weights of concepts, invalid settings."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.base import metrics
from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.triplet import CSN, SCENet, TripletMethod
from mtcon_ray.models.encoders.small import Small
from tests.losses.cases import TASKS, VALUES
from tests.problems import problem

# Inputs of case E, whose values are in unit_values.json: anchor, far, close.
Z_B3D = torch.tensor([[[0.5, -1, 2, 0.3], [1, 0, 1, -0.5], [0.4, -0.8, 1.5, 2]]]).double()


def csn(*, dim: int = 4, seed: int = 0, **fields: Any) -> CSN:
    return CSN(CSN.Spec.model_validate(fields), problem(*TASKS, head_dim=dim, seed=seed))


def scenet(*, seed: int = 0, **fields: Any) -> SCENet:
    return SCENet(SCENet.Spec.model_validate(fields), problem(*TASKS, seed=seed))


def case_e(method: TripletMethod, condition: int) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the losses and the gauges with case E's masks, of a triplet of this condition."""
    with torch.no_grad():
        method.get_parameter("beta").copy_(torch.tensor([[1, -0.2, 0.5, 0.1], [0.1, 1, 0, 1]]))
    labels = {task: torch.zeros(1, dtype=torch.int64) for task in TASKS}
    output = method({"embedding": Z_B3D}, Batch(labels, 1, condition=torch.tensor([condition])))
    return output.losses, output.gauges()


@pytest.mark.parametrize("condition", [0, 1])
def test_loss_of_csn_in_case_e(condition: int) -> None:
    """The hinge, both regularisers and their sum have the reference values."""
    known, method = VALUES[f"E_csn_c{condition}"], csn().double()
    losses, gauges = case_e(method, condition)
    assert losses["triplet"].item() == pytest.approx(known["hinge"], rel=1e-6)
    assert losses["embedding"].item() == pytest.approx(5e-3 * known["embed_term"], rel=1e-6)
    assert losses["mask"].item() == pytest.approx(5e-4 * known["mask_term"], rel=1e-6)
    assert method.weighting(losses).objective.item() == pytest.approx(known["total"], rel=1e-6)
    right = known["d_far"] > known["d_close"]
    assert {k: v.item() for k, v in gauges.items()} == {metrics.TRIPLET_ACCURACY: right}


def test_loss_of_scenet_in_case_e() -> None:
    """The bias of the last layer alone gives the weights 0.7 and 0.3."""
    known, method = VALUES["E_sce"], scenet().double()
    with torch.no_grad():
        last = method.branch[-1]
        assert isinstance(last, nn.Linear)
        last.weight.zero_()
        last.bias.copy_(torch.tensor([0.7, 0.3], dtype=torch.float64).log())
    losses, gauges = case_e(method, 1)
    distances = method.distances(Z_B3D, Batch({}, 1))
    assert distances[0].tolist() == pytest.approx([known["d_far"], known["d_close"]], rel=1e-6)
    assert losses["triplet"].item() == known["hinge"]
    embed = VALUES["E_csn_c0"]["embed_term"]
    assert losses["embedding"].item() == pytest.approx(5e-3 * embed, rel=1e-6)
    assert losses["mask"].item() == pytest.approx(5e-4 * (1.6 + 2.1) / 2, rel=1e-6)
    assert gauges[metrics.TRIPLET_ACCURACY].item() == 1


def test_conditions_count_the_tasks_that_have_classes() -> None:
    kinds = {"shape": "classes", "tags": "set", "colour": "classes"}
    method = CSN(CSN.Spec(), problem(*kinds, kinds=kinds))
    assert (method.conditions, method.beta.shape) == (TASKS, (2, 4))


def test_learned_masks_start_around_nine_tenths() -> None:
    """Normal with mean 0.9 and deviation 0.7."""
    beta = csn(dim=4000).beta
    assert beta.mean().item() == pytest.approx(0.9, abs=0.04)
    assert beta.std().item() == pytest.approx(0.7, abs=0.04)


@pytest.mark.parametrize("make", [csn, scenet])
def test_a_start_follows_the_seed_alone(make: Any) -> None:
    """The state of the global generator has no effect, and stays."""
    torch.manual_seed(1)
    state = torch.get_rng_state()
    one = make().state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    again, other = make().state_dict(), make(seed=1).state_dict()
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not any(torch.equal(one[key], other[key]) for key in one)


def test_weights_of_concepts_are_the_equation_written_out() -> None:
    """softmax(W2 ReLU(W1 [x; y; z] + b1) + b2) of unit embeddings, the same for both distances."""
    method = scenet(num_concepts=3)
    z = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    first, _, second = method.branch
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    assert (first.in_features, first.out_features, second.out_features) == (12, 32, 3)
    for b, weight_2K in enumerate(method.concept_weights(z)):
        given = torch.cat([row / row.norm() for row in z[b]])
        hidden = (first.weight @ given + first.bias).clamp(min=0)
        expected = (second.weight @ hidden + second.bias).softmax(dim=0)
        torch.testing.assert_close(weight_2K, expected.expand(2, 3))


def test_the_embedding_is_linear_and_probed() -> None:
    network = csn(dim=7).make_network(Small(Small.Spec(width=4))).eval()
    assert network.features(torch.randn(2, 3, 16, 16)).shape == (2, 7)
    (head,) = network.heads
    assert isinstance(head, nn.Linear)
