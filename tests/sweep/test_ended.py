"""The resume of a sweep that has ended with all its trials: Ray is not asked."""

import os
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.paths import journal_file, parent_log, sweep_folder
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Ended, Reopened, Reported, last_change
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, with_scheduler, with_values
from mtcon_ray.sweep import driver, ended
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import settle
from mtcon_ray.sweep.searcher import tell
from mtcon_ray.sweep.study import named_trials, open_study
from mtcon_ray.tracking.cursors import num_unsent
from mtcon_ray.tracking.sender import Sender
from tests.recorded import plan_with
from tests.sweep.written_sweep import EPOCHS, write_sweep


class Notes(Callbacks):
    """Callbacks that keep the lines of news."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Returns a sweep without tracking whose three trials have ended; reports are not drawn.

    With the parameter FAILED the last one has failed.
    """
    folder = sweep_folder(tmp_path, "shoes-1")
    write_sweep(folder)
    spec = with_values(load_recorded(folder / "spec.yaml"), {"tracking.offline": True})
    (folder / "spec.yaml").write_text(yaml.safe_dump(dump_spec(spec)))
    study, record = open_study(journal_file(folder), folder.name), SweepRecord(folder, spec)
    last = named_trials(study)[2]
    if getattr(request, "param", None) is Status.FAILED:
        tell(study, last, Status.FAILED, None, "its process was lost")
        record.trial_ended(last, Status.FAILED, "its process was lost")
    else:
        record.spool(last).append(Reopened())
        for epoch in range(2, EPOCHS + 1):
            record.spool(last).append(Reported(epoch=epoch, metrics={MEAN_ACCURACY: 0.5}))
        settle(study, record)
    EventLog(parent_log(folder)).append(Ended(status="FINISHED", tags={}))
    monkeypatch.setattr(ended, "build_report", lambda results, *_, **__: results.report_path)
    return folder


def test_nothing_is_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a sweep that has ended needs no cluster")

    monkeypatch.setattr(driver, "view_of", refuse)
    spec, before = load_recorded(folder / "spec.yaml"), parent_log(folder).read_bytes()
    notes, root = Notes(), folder.parents[1]
    results = driver.run_sweep(spec, root=root, name="shoes-1", resume=True, callbacks=notes)
    assert [t.status for t in results.trials] == ["FINISHED", "PRUNED", "FINISHED"]
    assert notes.texts == ["shoes-1 has ended already, with all its trials"]
    assert parent_log(folder).read_bytes() == before


def interrupt(folder: Path, spec: RunSpec) -> RunSpec:
    EventLog(parent_log(folder)).append(Reopened())
    return spec


def lose_an_epoch(folder: Path, spec: RunSpec) -> RunSpec:
    path = folder / "spool" / "trial-0000.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[2:]))
    return spec


@pytest.mark.parametrize(
    "change",
    [
        interrupt,
        lose_an_epoch,
        lambda folder, spec: with_values(spec, {"storage.keep": 1}),
    ],
)
def test_anything_left_to_do_is_left_to_the_resume(
    folder: Path, change: Callable[[Path, RunSpec], RunSpec]
) -> None:
    spec = load_recorded(folder / "spec.yaml")
    uri = f"sqlite:///{folder}/mlflow.db"
    found = ended.ended_results(folder, with_scheduler(spec), uri, Callbacks(), again=True)
    assert found is not None
    changed = with_scheduler(change(folder, spec))
    assert ended.ended_results(folder, changed, uri, Callbacks(), again=True) is None


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_events_that_mlflow_lacks_are_sent_without_a_cluster(
    folder: Path, empty_database: Path
) -> None:
    """The driver was killed before the end of sending. A database that is away is told of."""
    spec = with_values(load_recorded(folder / "spec.yaml"), {"tracking.offline": False})
    (folder / "spec.yaml").write_text(yaml.safe_dump(dump_spec(spec)))
    spec, database = with_scheduler(spec), folder.parents[1] / "mlflow.db"
    (folder / "file").write_text("")
    left = num_unsent(folder)
    for uri, told in (
        (f"sqlite:///{folder}/file/mlflow.db", ["NOT ALL IS IN MLFLOW (the tracking server"]),
        (f"sqlite:///{database}", [f"{left} events sent to MLflow"]),
        (f"sqlite:///{database}", []),
    ):
        if not database.exists() and "file" not in uri:
            shutil.copy(empty_database, database)
        notes = Notes()
        assert ended.ended_results(folder, spec, uri, notes, again=False) is not None
        first, *rest = notes.texts
        assert first == "shoes-1 has ended already, with all its trials"
        assert [text[: len(begin)] for text, begin in zip(rest, told, strict=True)] == told
    assert num_unsent(folder) == 0


def test_a_signal_at_the_end_of_a_sweep_says_what_mlflow_lacks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All trials have ended, the report is built, and the server is silent."""
    silence, notes, root = threading.Event(), Notes(), folder.parents[1]

    def build(results: SweepResults, *_: Any, **__: Any) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        results.report_path.parent.mkdir()
        return results.report_path

    data = SimpleNamespace(fingerprint="", places={})
    for name, value in {
        "build_report": build,
        "view_of": lambda *_: None,
        "prepare": lambda *_: (plan_with(num_trials=3), data),
        "check_same_data": lambda *_: None,
        "data_tags": lambda _: {},
        "connected": lambda *_: nullcontext(),
        "check_shared": lambda _: None,
    }.items():
        monkeypatch.setattr(driver, name, value)
    monkeypatch.setattr(driver._Sweep, "_tune", lambda self: None)
    monkeypatch.setattr(Sender, "attempt", lambda self: silence.wait())
    monkeypatch.setattr("mtcon_ray.tracking.lifecycle.STOPPED_DRAIN_SECONDS", 0.2)
    spec = interrupt(folder, load_recorded(folder / "spec.yaml"))
    spec = with_values(spec, {"tracking.offline": False})
    with pytest.raises(Interrupted, match=r"stopped by SIGINT; shoes-1 has ended$"):
        driver.run_sweep(spec, root=root, name="shoes-1", resume=True, callbacks=notes)
    silence.set()
    assert notes.texts[-1].startswith("NOT ALL IS IN MLFLOW (no answer in time)")
    assert f"`mtcon-ray track-sync shoes-1 --root {root}`" in notes.texts[-1]
    assert load_sweep(folder).winner is not None
    last = last_change(EventLog.read(parent_log(folder)))
    assert isinstance(last, Ended)
    assert last.status == "FINISHED"


@pytest.mark.parametrize("folder", [Status.FAILED], indirect=True)
def test_failed_trials_are_left_to_do_if_they_shall_be_tried_again(folder: Path) -> None:
    spec, uri = with_scheduler(load_recorded(folder / "spec.yaml")), "sqlite:////none"
    assert ended.ended_results(folder, spec, uri, Callbacks(), again=False) is not None
    assert ended.ended_results(folder, spec, uri, Callbacks(), again=True) is None
