"""Begin and end of a tracked record, without a server."""

import threading
import time
from pathlib import Path
from unittest.mock import Mock

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import PLAN_FILE, SPEC_FILE
from mtcon_ray.records.events import Ended, Reopened
from mtcon_ray.spec.resources import TrackingSpec
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.tracking.sender import Sender
from tests.recorded import plan_with
from tests.tracking.conftest import Sweep


@pytest.fixture
def callbacks() -> Mock:
    return Mock(Callbacks)


def lifecycle_of(sweep: Sweep, callbacks: Mock) -> Lifecycle:
    return Lifecycle(sweep.folder, TrackingSpec(experiment=sweep.experiment), sweep.uri, callbacks)


def test_what_mlflow_refused_is_said_at_the_end(tmp_path: Path, callbacks: Mock) -> None:
    lifecycle = lifecycle_of(Sweep(tmp_path / "shoes-1", "sqlite:////none/mlflow.db"), callbacks)
    lifecycle.sender.refused.append("parent, event 3: too long")
    lifecycle.close(stopped=False)
    ((text,), _) = callbacks.on_note.call_args
    assert text.startswith("MLflow refused 1 records (parent, event 3: too long)")
    callbacks.on_note.assert_called_once()


def test_a_stop_waits_for_a_silent_server_for_its_own_short_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, callbacks: Mock
) -> None:
    sweep, silence = Sweep(tmp_path / "shoes-1", "sqlite:////none/mlflow.db"), threading.Event()
    monkeypatch.setattr("mtcon_ray.tracking.lifecycle.STOPPED_DRAIN_SECONDS", 0.2)
    monkeypatch.setattr(Sender, "attempt", lambda self: silence.wait())
    sweep.begin()
    lifecycle = lifecycle_of(sweep, callbacks)
    lifecycle.begin(plan_with())
    begin = time.monotonic()
    lifecycle.close(stopped=True)
    assert time.monotonic() - begin < 30
    silence.set()
    ((text,), _) = callbacks.on_note.call_args
    assert text.startswith("not all is in MLflow (no answer in time); nothing is lost")


@pytest.mark.mlflow
@pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning")
def test_a_resume_replaces_files_in_mlflow(root: Path, sweep: Sweep, callbacks: Mock) -> None:
    """The third driver changed the spec. A run without an end event is not left RUNNING."""
    log = sweep.begin()
    for content in ("first", "third"):
        for file in (SPEC_FILE, PLAN_FILE):
            log.add_file(file, content)
        lifecycle = lifecycle_of(sweep, callbacks)
        lifecycle.begin(plan_with())
        lifecycle.close(stopped=False)
        log.append(Reopened())
    stored = [p for p in (root / "mlartifacts").rglob("*") if p.is_file()]
    assert {p.name: p.read_text() for p in stored} == {SPEC_FILE: "third", PLAN_FILE: "third"}
    assert sweep.run().info.status == "KILLED"
    callbacks.on_note.assert_not_called()


@pytest.mark.mlflow
def test_the_rest_of_an_ended_sweep_is_sent_once(sweep: Sweep, callbacks: Mock) -> None:
    sweep.begin().append(Ended(status="FINISHED", tags={}))
    for _ in range(2):
        lifecycle_of(sweep, callbacks).send_rest()
    assert sweep.run().info.status == "FINISHED"
    callbacks.on_phase.assert_called_once_with("sending to MLflow")
    callbacks.on_note.assert_not_called()
