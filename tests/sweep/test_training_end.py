"""The end of a single training: what is sent to MLflow, whatever ends the process."""

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from mtcon_ray.base.paths import parent_log
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.errors import DivergedError, StorageError
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Ended, Reported
from mtcon_ray.spec.run_spec import parse_spec, with_values
from mtcon_ray.sweep.training_job import train_run
from mtcon_ray.tracking.cursors import num_unsent
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.tracking.mlflow_server import tracking_uri
from mtcon_ray.tracking.sender import Sender
from mtcon_ray.training.trainer import Trainer
from tests.sweep.mirrored_sweep import Notes
from tests.waiting import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.mlflow,
    # MLflow 3.17.2 itself uses SQLAlchemy's deprecated `noload` loader.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]

EPOCHS = 3
SPEC = parse_spec(
    {
        "name": "tiny",
        "data": {"kind": "synthetic", "num_items": 120},
        "views": {"size": 16},
        "model": {"encoder": {"name": "small", "width": 8}, "head_dim": 8},
        "train": {"epochs": EPOCHS, "batch_size": 16, "precision": "auto"},
        "evaluate": {"bootstrap": 20},
    }
)


@pytest.fixture
def root(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a root with a database."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return tmp_path


def check_mlflow(root: Path) -> None:
    """Asserts that MLflow has one finished run with all metrics of the event log."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri(None, root))
    experiment = client.get_experiment_by_name("mtcon-ray")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [metric.step for metric in history] == [1, 2, 3]
    reports = [e for e in EventLog.read(parent_log(root / "runs" / "c")) if isinstance(e, Reported)]
    assert run.data.metrics.keys() == {name for e in reports for name in e.metrics}
    assert num_unsent(root / "runs" / "c") == 0


class Signals(Notes):
    """Callbacks that send signals to this process when the training has ended."""

    def __init__(self, send: Callable[[], None]) -> None:
        super().__init__()
        self._send = send

    def on_end(self, *_: object) -> None:
        self._send()


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def interrupt_later() -> None:
    threading.Timer(1, interrupt).start()


@pytest.mark.parametrize("send", [interrupt, interrupt_later])
def test_a_signal_at_the_end_says_what_mlflow_lacks(
    root: Path, monkeypatch: pytest.MonkeyPatch, send: Callable[[], None]
) -> None:
    """The server is silent; a resume sends everything, and removes what a kill had left."""
    silence, heard = threading.Event(), Signals(send)
    with monkeypatch.context() as patched:
        patched.setattr(Sender, "attempt", lambda _: silence.wait())
        patched.setattr("mtcon_ray.tracking.lifecycle.STOPPED_DRAIN_SECONDS", 0.2)
        patched.setattr("mtcon_ray.tracking.lifecycle.DRAIN_SECONDS", PATIENCE_SECONDS)
        with pytest.raises(Interrupted, match=r"stopped by SIGINT; c has finished$") as stopped:
            train_run(SPEC, root=root, name="c", callbacks=heard)
        assert stopped.value.exit_code == 130
        silence.set()
    note = heard.told[-1]
    assert note.startswith("NOT ALL IS IN MLFLOW (no answer in time); nothing is lost: send the")
    assert f"`mtcon-ray track-sync c --root {root}`" in note
    folder = root / "runs" / "c"
    (folder / "last.previous.pt").write_bytes(b"left by a kill")
    left, again = num_unsent(folder), Notes()
    result = train_run(SPEC, root=root, name="c", resume=True, callbacks=again)
    assert result.status == "FINISHED"
    assert again.told == ["c has finished already", f"{left} events sent to MLflow"]
    assert not (folder / "last.previous.pt").exists()
    check_mlflow(root)


@pytest.mark.parametrize("fails", [False, True])
def test_an_end_that_finds_no_room_is_told_to_mlflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """The end of tracking sets its run to KILLED, and prints a line."""
    append, calls = EventLog.append, list[str]()

    def fills(self: EventLog, event: Any) -> Any:
        if isinstance(event, Ended):
            raise StorageError.of(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return append(self, event)

    monkeypatch.setattr(EventLog, "append", fills)
    monkeypatch.setattr(
        Lifecycle, "close", lambda self, *, stopped: calls.append(f"close, {stopped=}")
    )
    offline = with_values(SPEC, {"tracking.offline": True})
    if fails:
        monkeypatch.setattr(Trainer, "__init__", Mock(side_effect=DivergedError("loss is nan")))
    with pytest.raises(DivergedError if fails else StorageError, match=r"nan|mine --resume"):
        train_run(offline, root=tmp_path, name="mine", callbacks=Notes())
    assert calls == [f"close, stopped={not fails}"]
