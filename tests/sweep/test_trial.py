"""Errors of a trial before and during training, and the memory left after a failure."""

import errno
import gc
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock, Mock
from weakref import ref

import pytest
import torch

from mtcon_ray import errors
from mtcon_ray.base.paths import attempt_folder, next_attempt
from mtcon_ray.base.status import Status
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.trial import Assignment, ending, reports
from mtcon_ray.training import checkpoint
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.trainer import Progress
from tests import specs
from tests.some import some

CPU = torch.device("cpu")
FULL = OSError(errno.ENOSPC, "No space left on device", "/x/images.npy")


def assignment(folder: Path, **sections: Any) -> Assignment:
    quiet = {"data": {"kind": "synthetic"}, "tracking": {"system_metrics": False}}
    spec = parse_spec({"name": "t", **quiet, **sections})
    return Assignment(name="trial-0000", spec=spec, sweep=folder)


def results_of(work: Assignment, make_run: Any, **options: Any) -> Iterator[dict[str, Any]]:
    """Returns a trial's results. Its data are never read."""
    return reports(work, lambda _: cast(Dataset, None), device=CPU, make_run=make_run, **options)


def test_a_trial_that_asked_for_a_gpu_does_not_train_on_a_cpu(tmp_path: Path) -> None:
    """Ray offers the GPUs that a node declares, but torch may find no driver there."""
    (only,) = results_of(assignment(tmp_path, resources={"gpus": 0.5}), Mock())
    assert (only["outcome"], only["done"]) == (Status.FAILED, True)
    assert "torch finds no GPU on the node, but resources.gpus is 0.5" in only["reason"]


def test_a_failed_trial_holds_nothing_of_its_step(tmp_path: Path) -> None:
    """The process waits for its next trial, so tensors of a failed step would occupy the device."""
    kept: list[ref[Any]] = []

    class Activations:
        """Stand-in for a step's tensors on the device."""

    def diverges(*_: Any, **__: Any) -> None:
        activations = Activations()
        kept.append(ref(activations))
        raise errors.DivergedError("the loss of step 3 must be finite, got nan")

    waiting = results_of(assignment(tmp_path), diverges)
    assert next(waiting)["reason"].startswith("Diverged: the loss of step 3")
    gc.collect()
    assert kept[0]() is None
    assert list(waiting) == []


def test_a_trial_reads_weights_from_the_roots_store(tmp_path: Path) -> None:
    work, make_run = assignment(tmp_path), Mock(side_effect=errors.DivergedError("enough"))
    list(results_of(work, make_run))
    assert make_run.call_args.kwargs["store"] == work.root / "store"


def training(before: Callable[[int, Any], None]) -> Callable[..., Any]:
    """Returns a stand-in for a trainer that trains three epochs without a probe.

    `before` is called before each epoch, with its number and the trainer's check of the driver.
    """

    def make_run(*_: Any, to_line: Callable[[Progress], str], check: Any, **__: Any) -> Any:
        def epochs() -> Iterator[Progress]:
            for epoch in (1, 2, 3):
                before(epoch, check)
                progress = Progress(epoch, {"loss": 1.0}, False, False)
                run.lines.append(to_line(progress))
                yield progress

        run = MagicMock(lines=[], last=None, interrupted=False, place={})
        run.resume.return_value, run.__iter__.side_effect = None, epochs
        return run

    return make_run


def epochs_in(results: list[dict[str, Any]]) -> list[list[int]]:
    return [[json.loads(line)["epoch"] for line in each["lines"]] for each in results]


def test_a_process_that_outlives_its_driver_ends(tmp_path: Path) -> None:
    """As on a node that was cut off: there the next driver cannot end the process."""

    def outlived(epoch: int, check: Callable[[], None]) -> None:
        if epoch == 2:
            attempt_folder(tmp_path, 4).mkdir(parents=True)
            with pytest.raises(errors.PreemptedError):
                check()  # before it replaces a checkpoint

    assert next_attempt(tmp_path) == 0
    with pytest.raises(errors.PreemptedError, match="a later driver has taken over the sweep"):
        list(results_of(replace(assignment(tmp_path), attempt=3), training(outlived)))
    assert next_attempt(tmp_path) == 5, "also where folders were removed"


def test_epochs_are_sent_once_per_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And at the latest with the error that ends the trial."""
    now, pause = 100.0, 0.6
    clock = SimpleNamespace(monotonic=lambda: now, time_ns=time.time_ns)
    monkeypatch.setattr("mtcon_ray.sweep.trial.time", clock)

    def timed(epoch: int, check: Callable[[], None]) -> None:
        nonlocal now
        now += pause
        if epoch == 3:
            raise errors.DivergedError("the loss is nan")

    first, last = results_of(assignment(tmp_path), training(timed))
    assert epochs_in([first, last]) == [[1, 2], []]
    assert [json.loads(line)["seconds"] for line in first["lines"]] == [0.6, 0.6]
    assert (first["outcome"], first["done"]) == (Status.RUNNING, False)
    assert last["outcome"] is Status.FAILED
    pause = 0.1
    (only,) = results_of(assignment(tmp_path), training(timed))
    assert epochs_in([only]) == [[1, 2]], "no epoch before an error is lost"


HALTS = [
    (errors.StorageError("cannot write last.pt"), "cannot write last.pt"),
    (errors.DataError("the images have changed"), "the images have changed"),
    (FULL, r"cannot write /x/images.npy: No space left on device; free disk"),
]


@pytest.mark.parametrize(("error", "halt"), HALTS)
def test_what_each_trial_meets_halts_the_sweep(tmp_path: Path, error: Exception, halt: str) -> None:
    """The trial stays open, so that a resume continues it."""
    (only,) = results_of(assignment(tmp_path), Mock(side_effect=error))
    assert (only["outcome"], only["done"]) == (Status.INTERRUPTED, True)
    assert re.match(halt, only["halt"])


def test_a_spec_that_the_node_refuses_fails_the_trial() -> None:
    end = some(ending(errors.SpecError("train.precision bfloat16 must be supported by the GPU")))
    assert end["outcome"] is Status.FAILED
    assert end["reason"].startswith("Spec: train.precision")


FATAL = [
    # The process may be unusable, or neighbours fill the GPU.
    (KeyError("x"), ALONE),
    (errors.MemoryTakenError("others use it"), ALONE),
    # The other ranks wait in a collective operation.
    (errors.DivergedError("the loss must be finite"), Ranks(1, 2)),
]


@pytest.mark.parametrize(("error", "ranks"), FATAL)
def test_fatal_errors_go_to_the_driver(error: Exception, ranks: Ranks, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        list(results_of(assignment(tmp_path), Mock(side_effect=error), ranks=ranks))


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., Any]:
    """Returns a function that begins or resumes a trial."""
    train = {"epochs": 4, "batch_size": 16, "precision": "float32"}
    quiet = {"system_metrics": False}
    spec = parse_spec({**specs.TINY, "name": "t", "train": train, "tracking": quiet})
    dataset = open_dataset(spec.data, view_size=spec.views.size, store=tmp_path / "store")

    def begin(name: str, until: int | None = None, logged: int = 0) -> Any:
        work = Assignment(name=name, spec=spec, sweep=tmp_path, until=until, logged=logged)
        for result in reports(work, lambda _: dataset, device=CPU):
            if result["lines"]:  # the network of the value is on disk
                kept = checkpoint.load(work.checkpoints(0) / "model.pt")
                assert kept["epoch"] == json.loads(result["lines"][-1])["epoch"]
            yield result

    return begin


def lines_in(results: Iterable[dict[str, Any]]) -> list[str]:
    return [line for each in results for line in each["lines"]]


def timeless(lines: list[str]) -> list[Any]:
    events = [(event["epoch"], event["metrics"]) for event in map(json.loads, lines)]
    return [(n, {k: v for k, v in values.items() if "second" not in k}) for n, values in events]


@pytest.mark.slow
def test_a_trial_waits_at_a_rung_and_goes_on(trial: Callable[..., Any], tmp_path: Path) -> None:
    """Its events and its network are those of a trial that never waits.

    Resumed trials send the epochs that the log lacks as they were, also the last epoch, of which
    the checkpoint has no test scores yet.
    """
    results, first = list(trial("trial-0000")), list(trial("trial-0001", until=2))
    assert results[-1]["outcome"] is Status.FINISHED
    assert first[-1] == {"lines": [], "outcome": Status.WAITING, "done": True}
    whole, early = lines_in(results), lines_in(first)
    for logged in (0, 1, 2):
        assert lines_in(trial("trial-0001", until=2, logged=logged)) == early[logged:]
    sent = next(trial("trial-0001", logged=1))
    assert sent["lines"] == early[1:], "before more is trained: the driver may stop the trial"
    last = lines_in(trial("trial-0000", logged=2))
    assert last[0] == whole[2]
    assert [json.loads(line)["epoch"] for line in last] == [3, 4]
    assert any(name.startswith("test/") for name in json.loads(last[1])["metrics"])

    assert timeless(early + lines_in(trial("trial-0001", logged=2))) == timeless(whole)
    kept = (tmp_path / "checkpoints" / name / "model.pt" for name in ("trial-0000", "trial-0001"))
    torch.testing.assert_close(*(checkpoint.load(path)["network"] for path in kept), rtol=0, atol=0)
