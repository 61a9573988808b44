"""The network: features, unit rows per head, and parameters from the seed alone."""

from copy import deepcopy

import torch

from mtcon_ray.models.encoders.small import Small
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from tests.models.test_vit import images
from tests.problems import projections

HEADS = ("category", "shoe.colour", "größe / €", "")
WITH_HEADS = projections(HEADS, dim=6)
SPEC = ModelSpec(encoder=Small.Spec(width=4), head_dim=6)


def test_each_head_gives_unit_rows_whatever_its_name() -> None:
    """Rows in bfloat16 would have length 1 only up to 1e-2."""
    network = build_network(SPEC, WITH_HEADS, seed=0)
    for is_half in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            z = network(images(3))
        assert tuple(z) == HEADS
        for z_ND in z.values():
            assert (z_ND.shape, z_ND.dtype) == ((3, 6), torch.float32)
            torch.testing.assert_close(z_ND.norm(dim=1), torch.ones(3), atol=1e-6, rtol=0)
    assert not torch.allclose(z[HEADS[0]], z[HEADS[1]])
    assert network.features(images(3)).shape == (3, 32)


def test_an_embedding_is_the_features_and_changes_no_encoder() -> None:
    """The momentum encoder is a copy with a layer of its own."""
    spec = SPEC.model_copy(update={"embedding_dim": 5})
    plain, network = (build_network(each, WITH_HEADS, seed=0).eval() for each in (SPEC, spec))
    copy = deepcopy(network)
    for parameter in copy.encoder.embedding_layer.parameters():
        torch.nn.init.zeros_(parameter)
    expected = network.encoder.embedding_layer(plain.features(images(3)))
    assert torch.equal(network.features(images(3)), expected)
    assert torch.equal(copy.features(images(3)), torch.zeros(3, 5))
    assert network(images(3))[HEADS[0]].shape == (3, 6)


def test_a_zero_row_has_a_finite_gradient() -> None:
    network = build_network(SPEC, projections(("a",), dim=6), seed=0)
    for parameter in network.heads.parameters():
        torch.nn.init.zeros_(parameter)
    z_ND = network(images(3))["a"]
    z_ND.sum().backward()
    assert torch.equal(z_ND, torch.zeros_like(z_ND))
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    assert max(g.abs().max().item() for g in gradients) < 1e8


def test_parameters_depend_on_the_seed_alone() -> None:
    torch.manual_seed(11)
    before = torch.get_rng_state()
    first = build_network(SPEC, WITH_HEADS, seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(12)
    again, other = (build_network(SPEC, WITH_HEADS, seed=seed).state_dict() for seed in (1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["encoder.stem.0.weight"], other["encoder.stem.0.weight"])
    assert not torch.equal(first["heads.0.0.weight"], other["heads.0.0.weight"])
