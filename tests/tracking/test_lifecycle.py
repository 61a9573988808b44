"""Begin and end of a tracked record, without a server."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import PLAN_FILE, SPEC_FILE
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
    notes, folder = Notes(), tmp_path / "runs" / "shoes-1"
    lifecycle = Lifecycle(folder, TrackingSpec(), f"sqlite:///{tmp_path}/mlflow.db", notes)
    assert lifecycle.sender is not None
    lifecycle.sender.refused.append("parent, event 3: too long")
    lifecycle.close(stopped=False)
    (text,) = notes.texts
    assert text.startswith("MLFLOW REFUSED 1 records (parent, event 3: too long)")


def test_a_stop_waits_for_a_silent_server_for_its_own_short_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, folder, silence = Notes(), tmp_path / "runs" / "shoes-1", threading.Event()
    monkeypatch.setattr("mtcon_ray.tracking.lifecycle.STOPPED_DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(Sender, "attempt", lambda self: silence.wait())
    lifecycle = Lifecycle(folder, TrackingSpec(), f"sqlite:///{tmp_path}/mlflow.db", notes)
    plan: Any = SimpleNamespace(warnings=())
    lifecycle.begin(plan, lambda: Started(params={}, tags={}))
    begin = time.monotonic()
    lifecycle.close(stopped=True)
    assert time.monotonic() - begin < 30
    silence.set()
    assert notes.texts[-1].startswith("NOT ALL IS IN MLFLOW (no answer in time); nothing is lost")


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_a_resume_replaces_spec_and_plan_in_mlflow(root: Path) -> None:
    """The second driver was killed right after its first event, the third one changed the spec."""
    folder, notes = root / "sweeps" / "shoes-1", Notes()
    folder.mkdir(parents=True)
    plan: Any = SimpleNamespace(warnings=())
    for content in ("first", "third"):
        for file in (SPEC_FILE, PLAN_FILE):
            (folder / file).write_text(content)
        lifecycle = Lifecycle(folder, TrackingSpec(), f"sqlite:///{root}/mlflow.db", notes)
        lifecycle.begin(plan, lambda: Started(params={}, tags={}))
        lifecycle.close(stopped=False)
        if content == "first":
            lifecycle.log.append(Reopened())
    stored = [p for p in (root / "mlartifacts").rglob("*") if p.is_file()]
    assert {p.name: p.read_text() for p in stored} == {SPEC_FILE: "third", PLAN_FILE: "third"}
    assert notes.texts == []


def test_spec_and_plan_are_recorded_though_the_first_driver_was_killed(tmp_path: Path) -> None:
    """It had only written the start event."""
    offline, plan = TrackingSpec(offline=True), SimpleNamespace(warnings=())
    lifecycle = Lifecycle(tmp_path / "shoes-1", offline, "", Callbacks())
    lifecycle.log.append(Started(params={}, tags={}))
    lifecycle.begin(cast("Any", plan), lambda: Started(params={}, tags={}))
    events = lifecycle.log.events()
    assert [e.kind for e in events] == ["start", "reopen", "artifact", "artifact"]


def test_a_store_without_an_answer_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each artifact would wait for the time limit of a request."""
    sender = Sender(tmp_path, f"sqlite:///{tmp_path}/mlflow.db", "shoes")
    event = Artifact(path="model.pt", to="").to_json()
    late = [{"run": f"trial-000{number}", "event": event} for number in range(3)]
    sender._late = list(late)
    tried: list[str] = []

    def fail(runs: Any, name: str, events: Any) -> None:
        tried.append(name)
        sender._late.append({"run": name, "event": event})

    monkeypatch.setattr(sender, "_send", fail)
    monkeypatch.setattr(sender, "_save", lambda: None)
    runs: Any = None
    sender._send_late(runs)
    assert tried == ["trial-0000"]
    assert sender._late == [*late[1:], late[0]], "the next attempt begins with another one"
