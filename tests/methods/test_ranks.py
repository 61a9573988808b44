"""Two workers agree with one: heads with batch norm, teachers, queues, temperature networks."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.distributed import ALONE, Ranks, parallelise
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.step import Learner, update
from tests.problems import problem

NUM_ITEMS = 6
PROJECTOR = {"dim": 4, "hidden": 8}
PREDICTOR = {**PROJECTOR, "predictor_hidden": 5}
AMCL = {"name": "amcl", "queue_size": 16, "tau_min": 0.05, **PREDICTOR}
CASES: dict[str, dict[str, Any]] = {
    "barlow": {"name": "barlow", **PROJECTOR},
    **{f"amcl-{form}": {**AMCL, "form": form} for form in ("moco", "simsiam", "barlow")},
}


def make(case: str, ranks: Ranks) -> Learner:
    """Returns a learner with a small network in float64 and the case's heads."""
    raw = CASES[case]
    encoder = {"name": "small", "width": 4}
    spec = ModelSpec.model_validate({"encoder": encoder, "head_dim": 4})
    kind = METHODS[raw["name"]]
    method = kind(kind.Spec.model_validate(raw), problem("shape", batch_size=NUM_ITEMS)).double()
    network = build_network(spec, method.make_network, seed=0).double()
    forward = parallelise(network, ranks, batch_norm="global")
    teacher = None if method.momentum is None else deepcopy(network).requires_grad_(False)
    optimizer = make_optimizer(network, method, TrainSpec())
    return Learner(network, forward, method, optimizer, ranks, teacher=teacher)


def two_updates(case: str, ranks: Ranks) -> dict[str, Tensor]:
    """Returns the state of all modules after two updates, and the losses."""
    learner = make(case, ranks)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 2 * NUM_ITEMS, 3, 16, 16, generator=generator, dtype=torch.float64)
    share, kept = ranks.share(2 * NUM_ITEMS), {}
    for step in range(2):
        batch = Batch({}, NUM_ITEMS)
        done = update(learner, x[step, share], batch, lr=0.05, step=step, num_steps=9)
        kept[f"loss {step}"] = done.objective
    modules = {"network": learner.network, "method": learner.method, "teacher": learner.teacher}
    for part, module in modules.items():
        if module is not None:
            kept |= {f"{part} {name}": value for name, value in module.state_dict().items()}
    return kept


def work(rank: int, folder: Path) -> None:
    """Runs all cases as one of two processes and writes the results."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/init", rank=rank, world_size=2)
    torch.save({case: two_updates(case, Ranks(rank, 2)) for case in CASES}, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory with the results of both processes, which start once."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn(work, args=(folder,), nprocs=2)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_workers_agree_with_one_and_with_each_other(case: str, folder: Path) -> None:
    expected = two_updates(case, ALONE)
    first, second = (torch.load(folder / f"{rank}.pt")[case] for rank in range(2))
    assert first.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(first[name], second[name]), name
        torch.testing.assert_close(first[name], value, rtol=1e-7, atol=1e-9, msg=name)
