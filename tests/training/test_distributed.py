"""Training on several workers equals training on one: loss, gradients, update and whole runs."""

import json
import warnings
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.errors import ResourceError
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.export.trained_network import load_network
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.training import distributed
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.step import Learner, update
from mtcon_ray.training.trainer import Trainer
from tests import specs
from tests.problems import problem
from tests.training.ranks import learner_on

NUM_ITEMS = 8
NUM_VIEWS = 2
LABELS = {"shape": [0, 1, 0, 2, -1, 1, 2, 0], "colour": [0, 0, 1, 1, 1, 0, -1, -1]}
WORLDS = (4, 2)  # the first world starts the processes; the second uses some of them again


def make(ranks: Ranks) -> tuple[Learner, Tensor, Batch]:
    """Returns a ResNet-18 in float64 with two tasks, and this rank's views of one global batch."""
    encoder = {"name": "resnet18", "stem": "small"}
    method = {"name": "mtcon", "temperature": 0.2}
    learner = learner_on(ranks, method, problem(*LABELS, head_dim=8), encoder, "global")
    generator = torch.Generator().manual_seed(1)
    x_NCHW = torch.randn(NUM_ITEMS * NUM_VIEWS, 3, 16, 16, generator=generator, dtype=torch.float64)
    labels = {task: torch.tensor(values) for task, values in LABELS.items()}
    return learner, x_NCHW[ranks.share(len(x_NCHW))], Batch(labels, NUM_ITEMS)


def one_update(ranks: Ranks) -> dict[str, Any]:
    """Returns loss, gradients, and the network's state after one update."""
    learner, x_NCHW, batch = make(ranks)
    done = update(learner, x_NCHW, batch, lr=0.1, step=0, num_steps=9)
    named = [*learner.network.named_parameters(), *learner.method.named_parameters()]
    return {
        "loss": done.objective,
        "gradients": {name: p.grad for name, p in named if p.grad is not None},
        "state": {**learner.network.state_dict(), **learner.method.state_dict()},
    }


def tiny_run(
    folder: Path, ranks: Ranks, should_stop: Callable[[], bool] = lambda: False, **changes: Any
) -> Trainer:
    """Returns a run of two epochs of a very small network on synthetic images.

    `changes` are fields of the section `train`, or `every` of `evaluate`.
    """
    tasks = {"tasks": ["shape", "colour"], "held_out": []}
    raw = {
        **specs.TINY,
        "name": "tiny",
        "data": {"kind": "synthetic", "num_items": 60, **tasks},
        "evaluate": {"every": changes.pop("every", 2), "bootstrap": 10},
        "train": {"epochs": 2, "batch_size": 16, "precision": "float32", **changes},
    }
    spec = parse_spec(raw)
    dataset = open_dataset(spec.data, view_size=16, store=folder / "store")
    device = torch.device("cpu")
    run = Trainer(
        spec, dataset, folder / "run", device=device, ranks=ranks, should_stop=should_stop
    )
    run.resume()
    return run


def train_in_pieces(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Trains until the last rank requests a stop within an epoch, then resumes on all ranks.

    The second exchange of answers comes after one step, half an epoch.
    """
    asked: list[bool] = []

    def should_stop() -> bool:
        asked.append(True)
        return ranks.rank == ranks.world - 1 and len(asked) == 2

    cut = tiny_run(folder, ranks, should_stop)
    before = list(cut)
    dist.barrier()
    resumed = tiny_run(folder, ranks)
    after = list(resumed)
    return {
        "interrupted": cut.interrupted,
        "step": cut.step,
        "epochs": [p.epoch for p in before] + [p.epoch for p in after],
        "evaluated": [p.evaluated for p in after],
        "metrics": sorted(after[-1].metrics),
        "digest": digest(resumed.network.state_dict()),
    }


def train_to_plateau(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Trains with validation values that do not improve, which rank 0 alone measures."""
    with patch.object(Evaluation, "validate", lambda _: {"val/accuracy": 0.5}):
        run = tiny_run(folder / "plateau", ranks, epochs=4, patience=1, every=1)
        seen = list(run)
    return {"epochs": [p.epoch for p in seen], "done": run.done, "last": seen[-1].done}


def flat(module: nn.Module) -> Tensor:
    """Returns a copy of all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def averaged(ranks: Ranks) -> list[float]:
    """Returns two parameters' gradients after averaging over ranks; the third one has none."""
    module = nn.ParameterList([torch.zeros(1), torch.zeros(2), torch.zeros(1)])
    module[0].grad = torch.tensor([float(ranks.rank)])
    module[1].grad = torch.tensor([1.0, 10.0 * ranks.rank])
    distributed.average_gradients(module, ranks)
    assert module[2].grad is None
    return [*module[0].grad.tolist(), *module[1].grad.tolist()]


def same(step: int, ranks: Ranks) -> bool:
    """Returns whether the ranks have read checkpoints of the same step."""
    try:
        distributed.check_same(step, Path("folder"), ranks, torch.device("cpu"))
    except ResourceError:
        return False
    return True


def digest(state: dict[str, Tensor]) -> str:
    """Returns a hash that is equal for states that are equal bit for bit."""
    total = sha256()
    for value in state.values():
        total.update(value.numpy().tobytes())
    return total.hexdigest()


def work(rank: int, folder: Path) -> None:
    """Runs one process: all worlds it belongs to."""
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    cpu = torch.device("cpu")
    for world in WORLDS:
        if rank >= world:
            return
        dist.init_process_group("gloo", f"file://{folder}/{world}", rank=rank, world_size=world)
        ranks = Ranks(rank, world)
        updated = one_update(ranks)
        results = {
            "digest": digest(updated["state"]),
            "run": train_in_pieces(folder, ranks) if world == 2 else None,
            "plateau": train_to_plateau(folder, ranks) if world == 2 else None,
            "averaged": averaged(ranks),
            "any": [distributed.any_rank(rank == r, ranks, cpu) for r in range(world + 1)],
            "same": [same(7, ranks), same(rank, ranks)],
        }
        (folder / f"{world}-{rank}.json").write_text(json.dumps(results))
        if rank == 0:
            torch.save(updated, folder / f"{world}.pt")
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder with the results of every world and rank; processes start only once."""
    folder = tmp_path_factory.mktemp("ranks")
    spawn(work, args=(folder,), nprocs=max(WORLDS))
    return folder


def results(folder: Path, world: int) -> list[dict[str, Any]]:
    """Returns the results that each rank of a world wrote."""
    return [json.loads((folder / f"{world}-{rank}.json").read_text()) for rank in range(world)]


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_workers_agree_with_one_and_with_each_other(folder: Path, world: int) -> None:
    """Compares loss, the gradient of every parameter, and the moments of batch norm.

    After the update all parameters and moments of the ranks are equal bit for bit. A flag of any
    rank counts for all, and the mean gradient over ranks 0 .. W-1 is (W-1)/2.
    """
    found = torch.load(folder / f"{world}.pt")
    torch.testing.assert_close(found, one_update(ALONE), rtol=1e-8, atol=1e-10)
    each, mean = results(folder, world), (world - 1) / 2
    assert len({result["digest"] for result in each}) == 1
    for result in each:
        assert result["any"] == [True] * world + [False]
        assert result["same"] == [True, False]
        assert result["averaged"] == [mean, 1.0, 10 * mean]


@pytest.mark.slow
def test_two_workers_train_as_one_and_stop_together(folder: Path, tmp_path: Path) -> None:
    """One rank stops the run within an epoch, both resume; only the first evaluates and saves."""
    first, second = (result["run"] for result in results(folder, 2))
    for found in (first, second):
        assert found["interrupted"]
        assert found["step"] == 1
        assert found["epochs"] == [1, 2]
        assert found["evaluated"] == [False, True]
    assert first["digest"] == second["digest"]
    accuracies = {name for name in first["metrics"] if name.startswith("val/")}
    assert set(first["metrics"]) - accuracies == set(second["metrics"])
    assert "val/accuracy" in accuracies
    alone = tiny_run(tmp_path, ALONE)
    start_P = flat(alone.network)
    list(alone)
    _, network = load_network(folder / "run" / "last.pt")
    # Over the run's four steps rounding errors of so narrow a network grow, hence the wide bound.
    found_P, expected_P = flat(network) - start_P, flat(alone.network) - start_P
    assert (found_P - expected_P).norm() < 1e-2 * expected_P.norm()


@pytest.mark.slow
def test_two_workers_end_at_the_same_plateau(folder: Path) -> None:
    """The second one yields its last epoch before it knows."""
    first, second = (result["plateau"] for result in results(folder, 2))
    assert first == {"epochs": [1, 2], "done": True, "last": True}
    assert second == {"epochs": [1, 2], "done": True, "last": False}


def test_answers_are_exchanged_every_two_seconds_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first exchange after one step measures the rate."""
    now = 0.0
    monkeypatch.setattr("mtcon_ray.training.distributed.perf_counter", lambda: now)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, op: None)
    asked: list[int] = []

    def ask() -> bool:
        asked.append(len(answers))
        return len(answers) == 9

    asks = distributed.Agreement(ask, ranks=Ranks(0, 2), device=torch.device("cpu"))
    answers = list[bool]()
    for _ in range(20):
        answers.append(asks())
        now += 0.25
    assert asked == [0, 1, 9, 17]
    assert [step for step, answer in enumerate(answers) if answer] == [9]


def test_one_worker_asks_in_each_step() -> None:
    answers = [True, False, True]
    asks = distributed.Agreement(iter(answers).__next__, ranks=ALONE, device=torch.device("cpu"))
    assert [asks() for _ in range(3)] == answers


def test_shares_are_contiguous_and_cover_the_batch() -> None:
    """Shares are in the order of ranks, so that gathered rows match their labels."""
    shares = [list(range(12))[Ranks(rank, 3).share(12)] for rank in range(3)]
    assert shares == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(AssertionError, match="10 items on 3 workers"):
        Ranks(0, 3).share(10)
