"""The method CSN: loss, masks and their initial values, invalid settings."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.base import metrics
from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.csn import CSN
from mtcon_ray.methods.triplet import disjoint_masks
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


def beta_of(method: CSN) -> Tensor:
    assert isinstance(method.beta, Tensor)
    return method.beta.detach()


@pytest.mark.parametrize("condition", [0, 1])
def test_loss_of_case_e(condition: int) -> None:
    """The hinge, both regularisers and their sum have the reference values."""
    known = VALUES[f"E_csn_c{condition}"]
    method = method_of().double()
    with torch.no_grad():
        beta_of(method).copy_(torch.tensor(BETA, dtype=torch.float64))
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
    assert beta_of(method).shape == (2, 4)


def test_learned_masks_start_around_nine_tenths_and_follow_the_seed() -> None:
    """Normal with mean 0.9 and deviation 0.7, whatever the state of the global generator."""
    torch.manual_seed(1)
    beta = beta_of(method_of(dim=4000))
    assert beta.mean().item() == pytest.approx(0.9, abs=0.04)
    assert beta.std().item() == pytest.approx(0.7, abs=0.04)
    torch.manual_seed(2)
    assert torch.equal(beta_of(method_of(dim=4000)), beta)
    other = CSN(CSN.Spec(), problem(*TASKS, head_dim=4000, seed=1))
    assert not torch.equal(beta_of(other), beta)


def test_disjoint_masks_share_all_dimensions_fairly() -> None:
    for num_masks, dim in ((3, 64), (4, 64), (5, 7), (1, 2)):
        mask = disjoint_masks(num_masks, dim, outside=0.0)
        assert mask.sum(dim=0).tolist() == [1] * dim
        sizes = mask.sum(dim=1)
        assert sizes.max() - sizes.min() <= 1
        soft = disjoint_masks(num_masks, dim, outside=0.1)
        torch.testing.assert_close(soft, mask * 0.9 + 0.1)


def test_only_learned_masks_are_parameters_and_all_are_saved() -> None:
    for masks, learned, low in (
        ("learned", True, None),
        ("learned_disjoint", True, 0.1),
        ("fixed_disjoint", False, 0.0),
    ):
        method = method_of(masks=masks)
        assert ("beta" in dict(method.named_parameters())) is learned
        assert "beta" in method.state_dict()
        losses = method({"embedding": torch.randn(2, 3, 4)}, batch_of(0, 1)).losses
        assert ("mask" in losses) is learned
        if low is not None:
            assert beta_of(method).unique().tolist() == pytest.approx([low, 1.0])


@pytest.mark.parametrize("probed", ["embedding", "encoder"])
def test_the_embedding_is_linear_and_probed_unless_told_otherwise(probed: str) -> None:
    network = method_of(dim=7, probed=probed).make_network(Small(Small.Spec(width=4))).eval()
    x_NCHW = torch.randn(2, 3, 16, 16)
    assert network.features(x_NCHW).shape == (2, 7 if probed == "embedding" else 32)
    (head,) = network.heads
    assert isinstance(head, nn.Linear)


def test_what_cannot_be_trained_is_refused() -> None:
    with pytest.raises(ValueError, match=r"head_dim must give each of 2 disjoint masks .* got 1"):
        method_of(masks="fixed_disjoint", dim=1)
    with pytest.raises(ValueError, match=r"num_triplets must be at least .* got 5 and 6"):
        method_of(num_triplets=5)
    with pytest.raises(ValueError, match=r"data\.tasks must have a column of classes"):
        CSN.Spec().check(problem("price", kinds={"price": "number"}))
    for bad in ({"margin": 0}, {"num_triplets": 0}, {"mask_penalty": -1}, {"masks": "random"}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            CSN.Spec.model_validate(bad)
