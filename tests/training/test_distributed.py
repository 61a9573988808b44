"""Several workers give the loss, the gradients and the update of one."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.mtcon import MTCon
from mtcon_ray.models.network import build_network
from mtcon_ray.models.spec import ModelSpec
from mtcon_ray.training.distributed import (
    ALONE,
    Ranks,
    any_rank,
    gather_rows,
    parallelise,
    same_on_all,
)
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.spec import TrainSpec
from mtcon_ray.training.step import Learner, update

NUM_ITEMS = 8
NUM_VIEWS = 2
LABELS = {"shape": [0, 1, 0, 2, -1, 1, 2, 0], "colour": [0, 0, 1, 1, 1, 0, -1, -1]}
DTYPES = (torch.float64, torch.float32)
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
WORLDS = (4, 2)  # the first starts the processes, of which the second keeps some


def make(ranks: Ranks, dtype: torch.dtype, batch_norm: str) -> tuple[Learner, Tensor, Batch]:
    """A ResNet-18 that learns two tasks, and this rank's views of one global batch."""
    spec = ModelSpec.model_validate({"encoder": {"name": "resnet18"}, "head_dim": 8})
    method = MTCon(MTCon.Spec(temperature=0.2), tuple(LABELS)).to(dtype)
    network = build_network(spec, method.heads, seed=0).to(dtype)
    network, forward = parallelise(network, ranks, batch_norm=batch_norm)
    learner = Learner(network, forward, method, make_optimizer(network, method, TrainSpec()), ranks)
    generator = torch.Generator().manual_seed(1)
    x_NCHW = torch.randn(NUM_ITEMS * NUM_VIEWS, 3, 32, 32, generator=generator, dtype=dtype)
    labels = {task: torch.tensor(values) for task, values in LABELS.items()}
    return learner, x_NCHW[ranks.share(len(x_NCHW))], Batch(labels, NUM_ITEMS)


def one_update(ranks: Ranks, dtype: torch.dtype) -> dict[str, Any]:
    """Loss, gradients, and what the network holds after the update."""
    learner, x_NCHW, batch = make(ranks, dtype, "global")
    done = update(learner, x_NCHW, batch, lr=0.1, step=0)
    named = [*learner.network.named_parameters(), *learner.method.named_parameters()]
    return {
        "loss": done.objective,
        "gradients": {name: p.grad for name, p in named if p.grad is not None},
        "state": {**learner.network.state_dict(), **learner.method.state_dict()},
    }


@torch.no_grad()
def local_losses(ranks: Ranks) -> list[float]:
    """Each task's loss, with batch norm over this rank's rows alone."""
    learner, x_NCHW, batch = make(ranks, torch.float64, "local")
    losses = learner.method(embed(learner, x_NCHW, batch.num_items), batch)
    return [loss.item() for loss in losses.values()]


def digest(state: dict[str, Tensor]) -> str:
    """Equal for states that are equal bit for bit."""
    total = sha256()
    for value in state.values():
        total.update(value.numpy().tobytes())
    return total.hexdigest()


def work(rank: int, folder: Path) -> None:
    """One process: every world that it belongs to, every dtype."""
    torch.set_num_threads(1)
    cpu = torch.device("cpu")
    for world in WORLDS:
        if rank >= world:
            return
        dist.init_process_group("gloo", f"file://{folder}/{world}", rank=rank, world_size=world)
        ranks = Ranks(rank, world)
        updates = {dtype: one_update(ranks, dtype) for dtype in DTYPES}
        results = {
            "digests": [digest(found["state"]) for found in updates.values()],
            "local": local_losses(ranks),
            "any": [any_rank(rank == r, ranks, cpu) for r in range(world + 1)],
            "same": [same_on_all(7, ranks, cpu), same_on_all(rank, ranks, cpu)],
        }
        (folder / f"{world}-{rank}.json").write_text(json.dumps(results))
        if rank == 0:
            torch.save(updates, folder / f"{world}.pt")
        dist.destroy_process_group()


def distance(found: Tensor, expected: Tensor) -> float:
    """Relative, in the 2-norm."""
    return float((found - expected).norm() / expected.norm())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of every world and rank; starting processes is slow, so they start once."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn(work, args=(folder,), nprocs=max(WORLDS))
    return folder


def results(folder: Path, world: int) -> list[dict[str, Any]]:
    """What each rank of a world wrote."""
    return [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_workers_agree_with_one(folder: Path, dtype: torch.dtype) -> None:
    """A ResNet-18 with batch norm: loss and every parameter's gradient; moments too."""
    expected = one_update(ALONE, dtype)
    for world in WORLDS:
        found = torch.load(folder / f"{world}.pt")[dtype]
        assert distance(found["loss"], expected["loss"]) < TOLERANCE[dtype]
        assert found["gradients"].keys() == expected["gradients"].keys()
        for name, gradient in expected["gradients"].items():
            assert distance(found["gradients"][name], gradient) < TOLERANCE[dtype], name
        for name, value in expected["state"].items():
            if value.is_floating_point() and value.norm() > 0:
                assert distance(found["state"][name], value) < TOLERANCE[dtype], name


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_stay_copies_of_each_other(folder: Path, world: int) -> None:
    """After the update every parameter and moment is the same bit for bit."""
    digests = [result["digests"] for result in results(folder, world)]
    assert digests == [digests[0]] * world


def test_local_batch_norm_is_another_function(folder: Path) -> None:
    """Else the tests above would show nothing about batch norm; the loss is still one."""
    alone, (first, *others) = local_losses(ALONE), [r["local"] for r in results(folder, 4)]
    assert abs(first[0] - alone[0]) > 1e-3
    assert others == [first] * 3


@pytest.mark.parametrize("world", WORLDS)
def test_ranks_decide_together(folder: Path, world: int) -> None:
    """A flag of any rank counts for all; a number must be the same on all."""
    for result in results(folder, world):
        assert result["any"] == [True] * world + [False]
        assert result["same"] == [True, False]


def test_alone_nothing_is_exchanged() -> None:
    """No process group is needed, and the rows are the very same tensor."""
    z_ND = torch.zeros(2, 3)
    assert gather_rows(z_ND, ALONE) is z_ND
    assert any_rank(True, ALONE, z_ND.device)
    assert not any_rank(False, ALONE, z_ND.device)
    assert same_on_all(3, ALONE, z_ND.device)


def test_shares_are_contiguous_and_cover_the_batch() -> None:
    """In rank order, so that gathered rows meet their labels."""
    shares = [list(range(12))[Ranks(rank, 3).share(12)] for rank in range(3)]
    assert shares == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(AssertionError, match="10 items on 3 workers"):
        Ranks(0, 3).share(10)
