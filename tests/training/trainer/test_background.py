"""Tests of trainings whose checkpoints a thread writes, as on a GPU; here forced on the CPU."""

import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch

from mtcon_ray.base.paths import MODEL_FILE
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training import checkpoint, trainer
from mtcon_ray.training.trainer import Progress, Trainer
from tests.training.trainer.cuts import STEPS_PER_EPOCH, check_same_end, stop_before, untimed

LIMIT = 30.0  # seconds after which a test that waits in vain fails


class SlowDisk:
    """Disk whose writes take 20 ms. A copy is what a kill would leave at that moment."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock, save = Lock(), checkpoint.save

        def slow(path: Path, state: Any, **options: Any) -> None:
            time.sleep(0.02)
            with self._lock:
                save(path, state, **options)

        monkeypatch.setattr(checkpoint, "save", slow)

    def copy(self, folder: Path, to: Path) -> tuple[int, ...]:
        """Copies the folder of a training; returns the times of its checkpoints."""
        with self._lock:
            shutil.copytree(folder, to)
        return tuple(sorted(file.stat().st_mtime_ns for file in to.glob("*.pt")))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    return SlowDisk(monkeypatch)


@pytest.mark.parametrize("num_steps", [2, STEPS_PER_EPOCH])
def test_steps_are_trained_while_an_epoch_is_written(
    start: Callable[..., Trainer],
    whole: Trainer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    num_steps: int,
) -> None:
    """The write of each epoch but the last takes two steps of the next one, or all of it."""
    save = checkpoint.save

    def waits(path: Path, state: Any, **options: Any) -> None:
        # last.pt is written at once after model.pt, which names the epoch.
        goal = state["epoch"] * STEPS_PER_EPOCH + num_steps if path.name == MODEL_FILE else 0
        until = time.monotonic() + LIMIT
        while run.step < min(goal, run.num_steps) and time.monotonic() < until:
            time.sleep(0.001)
        save(path, state, **options)

    def awaits() -> bool:
        if run.step == STEPS_PER_EPOCH + 2 == STEPS_PER_EPOCH + num_steps:
            run._writer.join()
        return False

    monkeypatch.setattr(checkpoint, "save", waits)
    run = start(tmp_path, background=True, should_stop=awaits)
    found = [(progress, run.step) for progress in run]
    first, second, third = (step for _, step in found)
    assert first in ((6, 7) if num_steps == 2 else (8,))
    assert 2 * STEPS_PER_EPOCH + num_steps <= second <= third == run.num_steps
    check_same_end(run, [progress for progress, _ in found], whole)


def test_the_time_while_an_epoch_is_recorded_does_not_count(
    start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock goes on by a second at each look, and by a million while an epoch is recorded."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1
        return now

    def awaits() -> bool:
        if run.step == STEPS_PER_EPOCH + 2:
            run._writer.join()
        return False

    monkeypatch.setattr(trainer, "perf_counter", clock)
    run = start(tmp_path, background=True, should_stop=awaits)
    steps = []
    for progress in run:
        now += 1_000_000
        steps.append(run.step)
        assert progress.metrics["images_per_second"] > 1
    assert steps[0] < 2 * STEPS_PER_EPOCH, "it was recorded between two epochs"


@pytest.mark.slow
@pytest.mark.parametrize("select", ["last", "best"])
def test_a_kill_at_any_step_ends_bit_equal(
    start: Callable[..., Trainer], spec: RunSpec, tmp_path: Path, disk: SlowDisk, select: str
) -> None:
    """Whatever was yielded until then is on disk: last.pt and a model.pt that is not older."""
    spec = with_values(spec, {"evaluate.select": select, "train.checkpoint_every": 1})
    uncut = start(tmp_path / "uncut", spec, background=False)
    expected = list(uncut)
    yielded: list[Progress] = []
    kills: dict[object, tuple[Path, int]] = {}

    def killed() -> bool:
        to = tmp_path / f"killed-{len(kills)}"
        versions = disk.copy(tmp_path / "run", to)
        if kills.setdefault((versions, len(yielded)), (to, len(yielded)))[0] != to:
            shutil.rmtree(to)  # nothing has changed
        return False

    for progress in start(tmp_path / "run", spec, background=True, should_stop=killed):
        yielded.append(progress)
        killed()
    assert {num for _, num in kills.values()} == {0, 1, 2, 3}
    for folder, num in kills.values():
        run = start(folder, spec, background=True)
        epochs = yielded[:num]
        if run.last is not None and run.last.epoch > num:
            epochs.append(run.last)
        if num:
            assert run.last is not None
            assert run.last.epoch >= num
            kept = checkpoint.load(folder / "model.pt")
            assert kept["epoch"] >= (num if select == "last" else best_of(expected[:num]))
        check_same_end(run, [*epochs, *run], uncut)
        assert checkpoint.load(folder / "model.pt")["epoch"] == (
            3 if select == "last" else best_of(expected)
        )


def best_of(epochs: list[Progress]) -> int:
    """Returns the first epoch of the highest value."""
    return max(epochs, key=lambda each: (each.metrics["val/accuracy"], -each.epoch)).epoch


@pytest.mark.parametrize("step", [0, 1, STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH + 1])
def test_a_stopped_training_yields_what_it_completed_and_ends_bit_equal(
    start: Callable[..., Trainer], whole: Trainer, tmp_path: Path, disk: SlowDisk, step: int
) -> None:
    cut = start(tmp_path, background=True, should_stop=stop_before(step))
    epochs = list(cut)
    assert cut.interrupted
    assert [p.epoch for p in epochs] == list(range(1, 1 + step // STEPS_PER_EPOCH))
    assert checkpoint.load(tmp_path / "last.pt")["step"] == cut.step == step
    run = start(tmp_path, background=True)
    check_same_end(run, [*epochs, *run], whole)


@pytest.mark.parametrize("background", [False, True])
def test_nothing_is_trained_after_the_epoch_of_a_rung(
    start: Callable[..., Trainer], whole: Trainer, tmp_path: Path, disk: SlowDisk, background: bool
) -> None:
    cut = start(tmp_path, background=background, until=2)
    assert not cut.at_rung
    epochs = list(cut)
    assert [p.epoch for p in epochs] == [1, 2]
    assert cut.interrupted
    assert cut.at_rung
    assert cut.step == 2 * STEPS_PER_EPOCH
    run = start(tmp_path, background=background)
    assert run.last is not None
    assert untimed(run.last) == untimed(epochs[-1])
    check_same_end(run, [*epochs, *run], whole)


def test_a_requested_checkpoint_is_on_disk_before_the_next_step(
    start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = checkpoint.save

    def slow(path: Path, state: Any, **options: Any) -> None:
        time.sleep(0.5 if state.get("step") == 1 else 0)
        save(path, state, **options)

    def should_save() -> bool:
        if run.step > 1:
            found.append(checkpoint.load(tmp_path / "last.pt")["step"])
        return run.step == 1

    monkeypatch.setattr(checkpoint, "save", slow)
    found: list[int] = []
    run = start(tmp_path, background=True, should_save=should_save)
    next(iter(run))
    assert found[0] == 1


def test_the_epoch_before_a_divergence_is_yielded(
    start: Callable[..., Trainer], tmp_path: Path, disk: SlowDisk
) -> None:
    def diverges() -> bool:
        if run.step == STEPS_PER_EPOCH:
            with torch.no_grad():
                next(run.network.parameters()).fill_(math.inf)
        return False

    run = start(tmp_path, background=True, should_stop=diverges)
    epochs = iter(run)
    assert next(epochs).epoch == 1
    with pytest.raises(DivergedError, match="at step 5 "):
        next(epochs)
    assert start(tmp_path).step == STEPS_PER_EPOCH


def test_on_a_cpu_no_thread_writes(start: Callable[..., Trainer], tmp_path: Path) -> None:
    assert start(tmp_path)._writer._thread is None


def test_all_workers_wait_for_each_evaluation(
    start: Callable[..., Trainer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In no collective operation, whose time limit an evaluation may exceed."""
    run, calls = start(tmp_path, background=True), []
    validate = Evaluation.validate

    def evaluated(evaluation: Evaluation) -> dict[str, float]:
        calls.append("evaluated")
        return validate(evaluation)

    monkeypatch.setattr(Evaluation, "validate", evaluated)
    monkeypatch.setattr(run._requests, "wait_for_all", lambda: calls.append("waited"))
    list(run)
    assert calls == ["evaluated", "waited"] * 3
