"""Begin and end of a tracked record, without a server."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import PLAN_FILE, SPEC_FILE, event_file
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Reopened, Started
from mtcon_ray.spec.resources import TrackingSpec
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.tracking.sender import Sender


class Notes(Callbacks):
    """Callbacks that keep the lines of news."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_note(self, text: str) -> None:
        self.texts.append(text)


def test_what_mlflow_refused_is_said_at_the_end(tmp_path: Path) -> None:
    notes, folder = Notes(), tmp_path / "sweeps" / "shoes-1"
    lifecycle = Lifecycle(folder, TrackingSpec(), f"sqlite:///{tmp_path}/mlflow.db", notes)
    lifecycle.sender.refused.append("parent, event 3: too long")
    lifecycle.close(stopped=False)
    (text,) = notes.texts
    assert text.startswith("MLFLOW REFUSED 1 records (parent, event 3: too long)")


def test_a_stop_waits_for_a_silent_server_for_its_own_short_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, folder, silence = Notes(), tmp_path / "sweeps" / "shoes-1", threading.Event()
    monkeypatch.setattr("mtcon_ray.tracking.lifecycle.STOPPED_DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(Sender, "attempt", lambda self: silence.wait())
    lifecycle = Lifecycle(folder, TrackingSpec(), f"sqlite:///{tmp_path}/mlflow.db", notes)
    EventLog(event_file(folder)).append(Started(params={}, tags={}))
    lifecycle.begin(cast("Any", SimpleNamespace(warnings=())))
    begin = time.monotonic()
    lifecycle.close(stopped=True)
    assert time.monotonic() - begin < 30
    silence.set()
    assert notes.texts[-1].startswith("NOT ALL IS IN MLFLOW (no answer in time); nothing is lost")


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_a_resume_replaces_spec_and_plan_in_mlflow(root: Path) -> None:
    """The third driver changed the spec. A run without an end event is not left RUNNING."""
    from mlflow import MlflowClient

    folder, notes = root / "sweeps" / "shoes-1", Notes()
    folder.mkdir(parents=True)
    log, plan = EventLog(event_file(folder)), SimpleNamespace(warnings=())
    for content, event in (("first", Started(params={}, tags={})), ("third", Reopened())):
        log.append(event)
        for file in (SPEC_FILE, PLAN_FILE):
            (folder / file).write_text(content)
            log.append(Artifact(path=str(folder / file), to=""))
        lifecycle = Lifecycle(folder, TrackingSpec(), f"sqlite:///{root}/mlflow.db", notes)
        lifecycle.begin(cast("Any", plan))
        lifecycle.close(stopped=False)
    stored = [p for p in (root / "mlartifacts").rglob("*") if p.is_file()]
    assert {p.name: p.read_text() for p in stored} == {SPEC_FILE: "third", PLAN_FILE: "third"}
    client = MlflowClient(f"sqlite:///{root}/mlflow.db")
    experiments = [each.experiment_id for each in client.search_experiments()]
    assert [run.info.status for run in client.search_runs(experiments)] == ["KILLED"]
    assert notes.texts == []
