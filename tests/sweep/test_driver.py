"""Whole sweeps on a real local Ray, a real study and a real MLflow."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import pytest
import torch
from optuna.trial import TrialState

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import cache_folder, checkpoint_folder, sweep_folder
from mtcon_ray.cluster.job_package import VERSIONS_VARIABLE
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.errors import SpecError, SweepError
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.spec.schedulers import NoScheduler
from mtcon_ray.sweep.driver import _Sweep, run_sweep
from mtcon_ray.sweep.study import REASON, named_trials, open_study
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.training.trainer import Trainer
from tests.sweep.small_sweeps import TINY, command, epochs_of, failing_steps, logged, wait_for
from tests.waiting import PATIENCE_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]

CPU = torch.device("cpu")


def sweep(path: Path, root: Path, **options: Any) -> SweepResults:
    return run_sweep(load_spec(path), root=root, callbacks=Callbacks(), **options)


def test_a_stopped_sweep_says_whether_trials_have_checkpoints(tmp_path: Path) -> None:
    driver = object.__new__(_Sweep)
    driver.folder = sweep_folder(tmp_path, "mine")
    told = "the GCS ended; no trial has a checkpoint yet; to continue: repeat the command"
    assert str(driver._stopped("the GCS ended")).startswith(told)
    checkpoints = checkpoint_folder(driver.folder, "trial-0000")
    checkpoints.mkdir(parents=True)
    (checkpoints / "last.pt").touch()
    told = "stopped by SIGINT; checkpoints are kept; to continue: repeat the command"
    assert str(driver._stopped("SIGINT")).startswith(told)


def test_a_job_s_user_is_told_of_commands_that_they_have(
    root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`submit` has no option --resume, so its messages must not name it."""
    sweep_folder(root, "mine").mkdir(parents=True)
    (sweep_folder(root, "mine") / "spec.yaml").touch()
    line = "to continue it: repeat the command with --name mine --resume; for a new one"
    with pytest.raises(SweepError, match=line):
        sweep(spec_file(), root, name="mine")
    monkeypatch.setenv(VERSIONS_VARIABLE, "{}")
    with pytest.raises(SweepError, match="repeat `mtcon-ray submit` with --name mine; for a new"):
        sweep(spec_file(), root, name="mine")


@pytest.mark.usefixtures("no_ray")
@pytest.mark.parametrize(
    ("place", "error"), [("_tune", KeyboardInterrupt), ("_finish", ZeroDivisionError)]
)
def test_an_end_by_a_second_signal_or_an_error_is_told_to_mlflow(
    root: Path,
    spec_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    error: type[BaseException],
) -> None:
    """Else its runs would be RUNNING there, and the sender would go on beside the next one."""
    calls: list[str] = []
    monkeypatch.setattr(Lifecycle, "stop", lambda self: calls.append("stop"))
    monkeypatch.setattr(
        Lifecycle, "close", lambda self, *, stopped: calls.append(f"close, {stopped=}")
    )
    monkeypatch.setattr(_Sweep, "_tune", lambda self: None)
    monkeypatch.setattr(_Sweep, place, Mock(side_effect=error))
    with pytest.raises(error):
        sweep(spec_file(tracking={"offline": True}), root)
    assert calls == ["stop", "close, stopped=True"]


def test_a_killed_sweep_is_resumed_with_nothing_lost_and_nothing_twice(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spec_file(train={"epochs": 12, "batch_size": 32})
    folder = sweep_folder(root, "cut")
    first = command(path, root)
    wait_for(lambda: _under_way(folder), "one trial done and another begun", first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    finished = [t.name for t in load_sweep(folder).trials if t.status == "FINISHED"]
    stamps = {n: (folder / "checkpoints" / n / "model.pt").stat().st_mtime_ns for n in finished}
    assert finished
    with monkeypatch.context() as other_data:
        other_data.setattr("mtcon_ray.data.sources.synthetic.VERSION", 0)
        with pytest.raises(SweepError, match=r"'cut' cannot be resumed: its images, labels"):
            sweep(path, root, name="cut", resume=True)

    # By its name alone: the spec is recorded in the sweep's folder.
    second = subprocess.run(
        [sys.executable, "-m", "mtcon_ray", "resume", "cut"],
        env={**os.environ, "MTCON_RAY_ROOT": str(root)}, capture_output=True, text=True,
        timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    printed = second.stdout
    assert second.returncode == 0, printed + second.stderr
    assert "preparing: connecting to Ray\n" in printed
    assert "warning: val/accuracy must have a standard error of at most" in printed
    assert "trial-0000 restored, finished at epoch 12/12, val/accuracy 0." in printed
    assert re.search(r"restored, interrupted at epoch \d+/12, .*: temperature=0\.1\n", printed)
    results = load_sweep(folder)
    assert [t.status for t in results.trials] == ["FINISHED"] * 3
    assert results.spec.search.scheduler == NoScheduler.Spec(), "the default, written out"
    seen = logged(root, folder)
    for trial in results.trials:
        assert epochs_of(folder, trial.name) == list(range(1, 13))
        assert sorted(seen["steps"][trial.name]) == list(range(1, 13))
    for name, stamp in stamps.items():
        assert (folder / "checkpoints" / name / "model.pt").stat().st_mtime_ns == stamp
    assert set(seen["statuses"].values()) == {"FINISHED"}

    spec, store = load_spec(path), cache_folder(root)
    dataset = open_dataset(spec.data, view_size=spec.views.size, store=store)
    trial = next(t for t in results.trials if t.name not in finished)  # the one that was cut
    uncut = Trainer(spec.trial(trial.params), dataset, tmp_path / trial.name, device=CPU)
    reports = [(progress.epoch, progress.metrics) for progress in uncut]
    reports[-1] = (12, {**reports[-1][1], **uncut.report()})
    assert _comparable(trial.reports) == _comparable(reports)


def _under_way(folder: Path) -> bool:
    """Returns True if one trial is finished and another one has reported two epochs."""
    if not (folder / "spec.yaml").exists():
        return False
    trials = load_sweep(folder).trials
    running = [t for t in trials if t.status == "RUNNING" and t.last_epoch >= 2]
    return bool(running) and any(t.status == "FINISHED" for t in trials)


def _comparable(reports: Any) -> list[tuple[int, dict[str, float]]]:
    loads = ("images_per_second", "system/")
    return [(e, {k: v for k, v in m.items() if not k.startswith(loads)}) for e, m in reports]


@pytest.mark.soak
def test_a_signal_marks_checkpoints_and_can_be_resumed(
    root: Path, spec_file: Callable[..., Path]
) -> None:
    path = spec_file(train={"epochs": 30, "batch_size": 32, "checkpoint_seconds": 0})
    folder = sweep_folder(root, "cut")
    process = command(path, root)
    wait_for((folder / "checkpoints/trial-0000/last.pt").exists, "checkpoint", process)
    os.kill(process.pid, signal.SIGINT)
    printed = process.communicate(timeout=PATIENCE_SECONDS)[0]
    assert process.returncode == 130, printed
    assert "--name cut --resume" in printed
    assert "Traceback" not in printed
    statuses = {t.status for t in load_sweep(folder).trials}
    assert "INTERRUPTED" in statuses
    seen = logged(root, folder)
    assert seen["parent"].info.status == "KILLED"
    assert "RUNNING" not in seen["statuses"].values()


@pytest.mark.parametrize("is_searched", [False, True])
def test_weights_are_fetched_before_a_folder_is_made(
    root: Path,
    spec_file: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    is_searched: bool,
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(root / "torch"))
    monkeypatch.setattr("torch.hub.urlopen", offline)
    weights = None if is_searched else "imagenet"
    space = {"model.encoder.weights": {"grid": [None, "imagenet"]}} if is_searched else {}
    path = spec_file(
        model={"encoder": {"name": "resnet18", "weights": weights}},
        search={**TINY["search"], "space": space},
    )
    with pytest.raises(SpecError, match="no route to host"):
        sweep(path, root, name="mine")
    assert not sweep_folder(root, "mine").exists()


@pytest.mark.soak
def test_a_sweep_that_has_ended_is_resumed_and_trains_nothing(
    root: Path, spec_file: Callable[..., Path]
) -> None:
    ended = sweep(spec_file(), root)
    again = sweep(spec_file(), root, name=ended.name, resume=True)
    assert again.trials == ended.trials
    assert again.winner == ended.winner
    assert len(logged(root, ended.folder)["children"]) == 3


@pytest.mark.usefixtures("undrawn")
def test_a_trial_that_fails_is_recorded_with_its_error_and_the_sweep_goes_on(
    tmp_path: Path, root: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One trial diverges; another one has an unexpected error in each process that tries it."""
    where, error = (
        "run.step == 3 and run.spec.seed == 1 and run.spec.train.weight_decay == 1e-4",
        "KeyError('kernel')",
    )
    monkeypatch.setenv("PYTHONPATH", failing_steps(tmp_path, where, error))
    search = {
        **TINY["search"],
        "space": {"train.weight_decay": {"grid": [1.0, 1e-4]}},
        "repeats": 2,
    }
    train = {**TINY["train"], "lr": 1000, "warmup_epochs": 0}
    results = sweep(spec_file(search=search, train=train), root)
    by_decay = {(t.params["train.weight_decay"], t.seed): t for t in results.trials}
    assert set(by_decay) == {(1.0, 0), (1.0, 1), (1e-4, 0), (1e-4, 1)}
    for seed in (0, 1):
        assert by_decay[1.0, seed].status == "FAILED"
        assert str(by_decay[1.0, seed].reason).startswith("Diverged: ")
    assert by_decay[1e-4, 0].status == "FINISHED"
    assert str(by_decay[1e-4, 1].reason).startswith("KeyError: 'kernel' (log: ")
    study = open_study(results.folder / "study.journal", results.name)
    failed = [t for t in named_trials(study) if t.state is TrialState.FAIL]
    reasons = [t.reason for t in results.trials if t.status == "FAILED"]
    assert [t.user_attrs[REASON] for t in failed] == reasons
