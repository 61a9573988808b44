"""Training on several workers equals training on one: loss, gradients, update and whole runs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from mtcon_ray.errors import ResourceError
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.export.trained_network import load_network
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.testing import start
from mtcon_ray.training import distributed
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.trainer import Trainer
from tests import specs
from tests.training.ranks import in_ranks

CPU = torch.device("cpu")


def tiny_run(
    folder: Path, ranks: Ranks, should_stop: Callable[[], bool] = lambda: False, **changes: Any
) -> Trainer:
    """Returns a run of two epochs of a very small network on synthetic images.

    `changes` are fields of the section `train`, or `every` of `evaluate`.
    """
    data = {"kind": "synthetic", "num_items": 60, "tasks": ["shape", "colour"], "held_out": []}
    evaluate = {"every": changes.pop("every", 2), "bootstrap": 10}
    train = {"epochs": 2, "batch_size": 16, "precision": "float32", "ema": 0.9, **changes}
    raw = {**specs.TINY, "name": "tiny", "data": data, "evaluate": evaluate, "train": train}
    options = {"ranks": ranks, "should_stop": should_stop}
    return start(parse_spec(raw), folder / "store", folder / "run", **options)


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
        "interrupted": cut.interrupted, "step": cut.step, "file": f"{resumed.folder}/last.pt",
        "epochs": [p.epoch for p in [*before, *after]], "evaluated": [p.evaluated for p in after],
        "metrics": sorted(after[-1].metrics), "state": resumed.network.state_dict(),
    }  # fmt: skip


def train_to_plateau(folder: Path, ranks: Ranks) -> dict[str, Any]:
    """Trains with validation values that do not improve, which rank 0 alone measures."""
    with patch.object(Evaluation, "validate", lambda _: {"val/accuracy": 0.5}):
        run = tiny_run(folder / "plateau", ranks, epochs=4, patience=1, every=1)
        seen = list(run)
    return {"epochs": [p.epoch for p in seen], "done": run.done, "last": seen[-1].done}


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
        distributed.check_same(step, Path("folder"), ranks, CPU)
    except ResourceError:
        return False
    return True


def flat(module: nn.Module) -> Tensor:
    """Returns a copy of all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def exchanged(ranks: Ranks) -> dict[str, Any]:
    """Returns what the workers tell each other of gradients, flags and steps."""
    return {
        "averaged": averaged(ranks),
        "any": [distributed.any_rank(ranks.rank == r, ranks, CPU) for r in range(3)],
        "same": [same(7, ranks), same(ranks.rank, ranks)],
    }


def all_of_a_pair(folder: Path, ranks: Ranks) -> list[dict[str, Any]]:
    return [exchanged(ranks), train_in_pieces(folder, ranks), train_to_plateau(folder, ranks)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """Returns the results of two processes, which start once."""
    folder = tmp_path_factory.mktemp("ranks")
    return in_ranks(partial(all_of_a_pair, folder), 2, folder)


@pytest.mark.slow
def test_two_workers_exchange_gradients_flags_and_steps(pair: list[list[dict[str, Any]]]) -> None:
    """A flag of any rank counts for all, and the mean gradient over ranks 0 and 1 is 0.5.

    tests/methods/test_ranks.py compares whole updates.
    """
    flags = {"any": [True, True, False], "same": [True, False]}
    assert [found for found, *_ in pair] == [{"averaged": [0.5, 1.0, 5.0], **flags}] * 2


@pytest.mark.slow
def test_two_workers_train_and_stop_alike(pair: list[list[dict[str, Any]]], tmp_path: Path) -> None:
    """One rank stops the run within an epoch, both resume; only the first evaluates and saves."""
    first, second = (run for _, run, _ in pair)
    alike = {"interrupted": True, "step": 1, "epochs": [1, 2], "evaluated": [False, True]}
    assert all(alike.items() <= found.items() for found in (first, second))
    torch.testing.assert_close(first["state"], second["state"], rtol=0, atol=0)
    accuracies = {name for name in first["metrics"] if name.startswith("val/")}
    assert set(first["metrics"]) - accuracies == set(second["metrics"])
    assert "val/accuracy" in accuracies
    alone = tiny_run(tmp_path, ALONE)
    start_P = flat(alone.network)
    list(alone)
    _, network = load_network(Path(first["file"]))
    # Over the run's four steps rounding errors of so narrow a network grow, hence the wide bound.
    found_P, expected_P = flat(network) - start_P, flat(alone.network) - start_P
    assert (found_P - expected_P).norm() < 1e-2 * expected_P.norm()


@pytest.mark.slow
def test_two_workers_end_at_the_same_plateau(pair: list[list[dict[str, Any]]]) -> None:
    """The second one yields its last epoch before it knows."""
    first, second = (plateau for *_, plateau in pair)
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

    asks = distributed.Agreement(ask, ranks=Ranks(0, 2), device=CPU)
    answers = list[bool]()
    for _ in range(20):
        answers.append(asks())
        now += 0.25
    assert asked == [0, 1, 9, 17]
    assert [step for step, answer in enumerate(answers) if answer] == [9]


def test_one_worker_asks_in_each_step() -> None:
    answers = [True, False, True]
    asks = distributed.Agreement(iter(answers).__next__, ranks=ALONE, device=CPU)
    assert [asks() for _ in range(3)] == answers


def test_shares_are_contiguous_and_cover_the_batch() -> None:
    """Shares are in the order of ranks, so that gathered rows match their labels."""
    shares = [list(range(12))[Ranks(rank, 3).share(12)] for rank in range(3)]
    assert shares == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    with pytest.raises(AssertionError, match="10 items on 3 workers"):
        Ranks(0, 3).share(10)
