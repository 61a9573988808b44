"""A method whose phases leave some parameters without gradient, on several workers."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.lgp import LGP
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.distributed import ALONE, Ranks, parallelise
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.step import Learner, update
from tests.problems import problem

pytestmark = pytest.mark.slow

WORLD = 2
VIT = {"name": "vit", "patch": 4, "width": 16, "depth": 3, "heads": 2}


def train(ranks: Ranks, steps: tuple[int, ...]) -> dict[str, Any]:
    """Trains these steps of ten; returns the state, and the modules with gradients in each step."""
    method = LGP(LGP.Spec(contrast="amcl", beta=1.0), problem("a", encoder="vit")).double()
    spec = ModelSpec.model_validate({"encoder": VIT, "head_dim": 4})
    network = build_network(spec, method.make_network, seed=0).double()
    network, forward = parallelise(network, ranks, batch_norm="global")
    optimizer = make_optimizer(network, method, TrainSpec(momentum=0.9, weight_decay=0.1))
    learner = Learner(network, forward, method, optimizer, ranks)
    generator = torch.Generator().manual_seed(1)
    x_NCHW = torch.randn(12, 3, 16, 16, generator=generator, dtype=torch.float64)
    graded = []
    for step in steps:
        torch.manual_seed(step + 100 * ranks.rank)
        x_local = x_NCHW[ranks.share(12)]
        update(learner, x_local, Batch({}, 6), lr=0.01, step=step, num_steps=10)
        named = network.named_parameters()
        graded.append({name.split(".")[0] for name, p in named if p.grad is not None})
    state: dict[str, Tensor] = {**network.state_dict(), **method.state_dict()}
    return {"state": state, "graded": graded}


def work(rank: int, folder: Path) -> None:
    """Runs one process: both phases, then only the second."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=WORLD)
    ranks = Ranks(rank, WORLD)
    found = {"both": train(ranks, (0, 1, 8, 9)), "second": train(ranks, (8, 9))}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Returns the results of each rank."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn(work, args=(folder,), nprocs=WORLD)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORLD)]


def test_both_phases_train_and_ranks_stay_copies(found: list[dict[str, Any]]) -> None:
    for result in found:
        first, second = {"encoder", "decoder"}, {"encoder", "heads"}
        assert result["both"]["graded"] == [first, first, second, second]
    one, other = (result["both"]["state"] for result in found)
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_unmasked_phase_is_that_of_one_worker(found: list[dict[str, Any]]) -> None:
    """The second phase has no randomness, so the states must agree."""
    alone = train(ALONE, (8, 9))["state"]
    torch.testing.assert_close(found[0]["second"]["state"], alone, rtol=1e-9, atol=1e-12)
