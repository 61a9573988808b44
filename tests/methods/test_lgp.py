"""The method LGP: the losses of its two phases, and learning rates by depth."""

from typing import Any

import pytest
import torch

from mtcon_ray.losses import nt_xent
from mtcon_ray.methods.autoencoding import LGP
from mtcon_ray.models.encoders.vit import ViT
from mtcon_ray.models.network import Network
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.distributed import ALONE
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.step import Learner, update
from tests.methods.test_can import BATCH, rows
from tests.models.test_vit import images
from tests.problems import problem
from tests.training.learners import snapshot


def make(depth: int = 3, **fields: Any) -> tuple[LGP, Network]:
    torch.manual_seed(0)
    method = LGP(LGP.Spec(**fields), problem("a", encoder="vit"))
    return method, method.make_network(ViT(ViT.Spec(patch=4, width=16, depth=depth, heads=2)))


def step(learner: Learner, progress: int, lr: float = 0.1) -> dict[str, float]:
    """Runs one update on two views of six items, step `progress` of ten; returns its losses."""
    done = update(learner, images(12), BATCH, lr=lr, step=progress, num_steps=10)
    return {head: loss.item() for head, loss in done.output.losses.items()}


def learner(method: LGP, network: Network, **train: Any) -> Learner:
    spec = TrainSpec.model_validate({"momentum": 0, "weight_decay": 0, **train})
    return Learner(network, network, method, make_optimizer(network, method, spec), ALONE)


def test_each_phase_has_its_own_loss() -> None:
    method, _ = make(masked_share=0.4, temperature=0.2)
    z_by_head = rows("instance")
    del z_by_head["noise"]
    method.progress = 0.39
    losses = method(z_by_head, BATCH).losses
    assert losses == {"instance": 0.0, "reconstruction": z_by_head["reconstruction"].mean()}
    method.progress = 0.4
    contrast = method({**z_by_head, "reconstruction": torch.zeros(6, 2, 1)}, BATCH).losses
    expected = nt_xent(z_by_head["instance"], temperature=0.2)
    assert contrast == {"instance": expected, "reconstruction": 0.0}


@pytest.mark.parametrize(
    ("depth", "thirds"),
    [(1, [0]), (2, [2, 0]), (3, [1, 2, 0]), (4, [1, 2, 0, 0]), (6, [1, 1, 2, 2, 0, 0])],
)
def test_blocks_are_grouped_by_thirds_of_their_depth(depth: int, thirds: list[int]) -> None:
    method, network = make(depth)
    groups = {name: method.lr_group(name) for name, _ in network.named_parameters()}
    for i, group in enumerate(thirds):
        assert {g for n, g in groups.items() if n.startswith(f"encoder.blocks.{i}.")} == {group}
    assert groups["encoder.embed.weight"] == 1
    others = {n: g for n, g in groups.items() if not n.startswith(("encoder.b", "encoder.e"))}
    assert set(others.values()) == {0}
    assert "encoder.norm.weight" in others


def test_a_step_s_rates_follow_the_depth_in_the_second_phase_alone() -> None:
    """A step is learning rate times gradient, with weight decay of the network's matrices alone.

    The method's own parameters have the rate of the first group.
    """
    for progress, scales in ((0, (1, 1, 1)), (9, (0.5, 0.1, 0.2))):
        method, network = make(lr_by_depth=(0.1, 0.2, 0.5), contrast="amcl", tau_min=0.05)
        of_network, before = snapshot(network), snapshot(network) | snapshot(method)
        step(learner(method, network, weight_decay=0.5), progress)
        for name, parameter in (*network.named_parameters(), *method.named_parameters()):
            if parameter.grad is not None:
                decay = 0.5 if name in of_network and parameter.ndim >= 2 else 0
                rate = 0.1 * scales[method.lr_group(name) if name in of_network else 0]
                expected = before[name] - rate * (parameter.grad + decay * before[name])
                torch.testing.assert_close(parameter, expected)
        assert (progress == 9) == all(p.grad is not None for p in method.parameters())


def test_a_phase_leaves_the_other_s_parameters_alone() -> None:
    """Momentum and weight decay do not move them either."""
    method, network = make()
    learning = learner(method, network, momentum=0.9, weight_decay=0.1)
    losses = ("reconstruction", "instance")
    for progress, own, other, part in ((0, *losses, "decoder"), (5, *losses[::-1], "heads")):
        before = snapshot(network)
        found = step(learning, progress)
        assert found[own] > found[other] == 0
        moved = [n for n, p in network.named_parameters() if not torch.equal(p, before[n])]
        assert {name.split(".")[0] for name in moved} == {"encoder", part}
