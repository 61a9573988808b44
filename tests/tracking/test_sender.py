"""The sender against a real MLflow on SQLite: nothing lost, nothing twice, statuses true."""

import math
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtcon_ray.tracking.sender import Sender, track_sync

if TYPE_CHECKING:
    from conftest import Sweep

pytestmark = [
    pytest.mark.mlflow,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]

SECONDS = 60  # to drain on a busy machine


@contextmanager
def sending(sweep: "Sweep") -> Iterator[Sender]:
    sender = Sender(sweep.folder, sweep.uri, sweep.experiment)
    sender.start()
    try:
        yield sender
    finally:
        assert sender.close(SECONDS) == 0, sender.last_error


def test_parent_and_child_are_nested_and_complete(sweep: "Sweep", tmp_path: Path) -> None:
    sweep.begin(**{"mlflow.note.content": "A sweep of temperatures."})
    trial = sweep.begin("trial-0000", **{"mtcon.version.torch": "2.15"})
    trial.append_report(1, {"loss": 2.0, "val/accuracy": 0.5, "sigma/heel-height": math.nan})
    trial.append_report(2, {"loss": math.inf, "val/accuracy": 0.75})
    checkpoint = tmp_path / "best.pt"
    checkpoint.write_bytes(b"weights")
    trial.append("artifact", path=str(checkpoint), to="checkpoints")
    trial.append("end", status="FINISHED", tags={"mtcon.value": "0.75"})
    with sending(sweep) as sender:
        assert sender.drain(SECONDS)
        ids = sender.run_ids()
        assert sender.parent_url() == f"http://127.0.0.1:5000/#/experiments/1/runs/{ids['parent']}"
    parent, child = sweep.run(), sweep.run("trial-0000")
    assert ids == {"parent": parent.info.run_id, "trial-0000": child.info.run_id}
    assert parent.info.status == "RUNNING"
    assert parent.data.tags["mlflow.note.content"] == "A sweep of temperatures."
    assert child.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert child.data.tags["mtcon.sweep"] == "shoes-1"
    assert child.data.tags["mtcon.trial"] == "trial-0000"
    assert child.data.tags["mtcon.version.torch"] == "2.15"
    assert child.data.tags["mtcon.value"] == "0.75"
    assert child.data.params == {"method.temperature": "0.1"}
    assert child.data.metrics["val/accuracy"] == 0.75
    assert math.isnan(child.data.metrics["sigma/heel-height"])
    assert child.info.status == "FINISHED"
    events = trial.events()
    assert child.info.start_time == events[0]["time_ms"]
    assert child.info.end_time == events[-1]["time_ms"]
    assert sweep.steps("trial-0000") == [1, 2]
    stored = list((sweep.folder.parents[1] / "mlartifacts").rglob("checkpoints/best.pt"))
    assert [p.read_bytes() for p in stored] == [b"weights"]


@pytest.mark.parametrize(
    ("status", "tags"),
    [
        ("KILLED", {"mtcon.pruned": "true"}),
        ("KILLED", {"mtcon.interrupted": "true"}),
        ("FAILED", {"mtcon.reason": "gradient norm nan at step 7\n" + "x" * 10_000}),
    ],
)
def test_statuses_are_true_and_taken_back_by_reopen(
    sweep: "Sweep", status: str, tags: dict[str, str]
) -> None:
    sweep.begin()
    trial = sweep.begin("trial-0000")
    trial.append_report(1, {"loss": 2.0})
    trial.append("end", status=status, tags=tags)
    with sending(sweep):
        pass
    run = sweep.run("trial-0000")
    [(tag, value)] = tags.items()
    assert run.info.status == status
    assert run.data.tags[tag] == value[:5000]
    trial.append("reopen")
    trial.append_report(2, {"loss": 1.0})
    with sending(sweep):
        pass
    again = sweep.run("trial-0000")
    assert again.info.run_id == run.info.run_id
    assert again.info.status == "RUNNING"
    assert tag not in again.data.tags
    assert sweep.steps("trial-0000") == [1, 2]


def test_eight_trials_one_after_the_other_while_it_sends(sweep: "Sweep") -> None:
    parent = sweep.begin()
    with sending(sweep) as sender:
        for number in range(8):
            trial = sweep.begin(f"trial-{number:04d}")
            for epoch in range(1, 6):
                trial.append_report(epoch, {"loss": 1.0 / epoch, "lr": 0.1})
            trial.append("end", status="FINISHED", tags={})
        parent.append("end", status="FINISHED", tags={})
    for number in range(8):
        assert sweep.steps(f"trial-{number:04d}") == [1, 2, 3, 4, 5]
        assert sweep.run(f"trial-{number:04d}").info.status == "FINISHED"
    assert sweep.run().info.status == "FINISHED"
    assert 0 < sender.cpu_seconds < 60


def test_killed_between_sending_and_remembering(sweep: "Sweep") -> None:
    """An old cursor file: every event is sent twice, and MLflow has each once."""
    sweep.begin()
    trial = sweep.begin("trial-0000")
    trial.append_report(1, {"loss": math.nan, "lr": 0.1})
    with sending(sweep):
        pass
    cursors = sweep.folder / "spool" / "cursors.json"
    old = cursors.read_bytes()
    trial.append_report(2, {"loss": 2.0, "lr": 0.1})
    trial.append_report(3, {"loss": 2.0, "lr": 0.1})
    trial.append("end", status="KILLED", tags={"mtcon.pruned": "true"})
    with sending(sweep):
        pass
    before = sweep.run("trial-0000")
    for state in (old, b"{torn", None):
        if state is None:
            cursors.unlink()
        else:
            cursors.write_bytes(state)
        with sending(sweep):
            pass
    assert sweep.steps("trial-0000") == [1, 2, 3]
    assert sweep.steps("trial-0000", "lr") == [1, 2, 3]
    assert sweep.run("trial-0000").to_dictionary() == before.to_dictionary()


def test_mlflow_itself_drops_what_is_sent_twice(sweep: "Sweep") -> None:
    """The store's own promise that covers an answer lost on its way back: same time, same value."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(sweep.uri)
    run_id = client.create_run("0").info.run_id
    batch = [Metric("loss", math.nan, 7, 1), Metric("loss", 2.0, 8, 2), Metric("lr", 0.1, 8, 2)]
    client.log_batch(run_id, batch[:1])
    client.log_batch(run_id, batch)
    client.log_batch(run_id, batch)
    assert [m.step for m in client.get_metric_history(run_id, "loss")] == [1, 2]


def test_offline_sweep_is_sent_whole_afterwards(sweep: "Sweep") -> None:
    parent = sweep.begin()
    for number in range(3):
        trial = sweep.begin(f"trial-{number:04d}")
        for epoch in range(1, 101):
            trial.append_report(epoch, {f"m{i}": epoch + i for i in range(30)})
        trial.append("end", status="FINISHED", tags={})
    orphan = sweep.begin("trial-0003")
    orphan.append_report(1, {"loss": 1.0})
    parent.append("end", status="FINISHED", tags={})
    total = 3 * 102 + 2 + 2
    assert track_sync(sweep.folder, sweep.uri, sweep.experiment) == (total, 0)
    assert track_sync(sweep.folder, sweep.uri, sweep.experiment) == (0, 0)
    for number in range(3):
        assert sweep.steps(f"trial-{number:04d}", "m29") == list(range(1, 101))
    assert sweep.run("trial-0002").info.status == "FINISHED"
    assert sweep.run("trial-0003").info.status == "KILLED"  # nobody is left to end it
    assert sweep.run().info.status == "FINISHED"


def test_signal_marks_open_runs_at_once_and_resume_takes_it_back(sweep: "Sweep") -> None:
    sweep.begin()
    done = sweep.begin("trial-0000")
    done.append("end", status="FINISHED", tags={})
    trials = [sweep.begin(f"trial-{number:04d}") for number in range(1, 6)]
    with sending(sweep) as sender:
        assert sender.drain(SECONDS)
        begin = time.monotonic()
        assert sender.mark_killed() == 6
        assert time.monotonic() - begin < 2
        assert sender.mark_killed() == 0
    assert sweep.run().info.status == "KILLED"
    assert sweep.run("trial-0000").info.status == "FINISHED"
    assert sweep.run("trial-0005").info.status == "KILLED"
    # The driver is killed before it writes an end; on resume one of the trials goes on.
    trials[0].append_report(1, {"loss": 1.0})
    with sending(sweep):
        pass
    assert sweep.run("trial-0001").info.status == "RUNNING"
    assert sweep.run("trial-0005").info.status == "KILLED"


def test_nothing_happens_without_a_connection(sweep: "Sweep") -> None:
    """Constructing and asking is cheap and safe at any time, in a signal handler too."""
    sender = Sender(sweep.folder, sweep.uri, sweep.experiment)
    assert sender.mark_killed() == 0
    assert (sender.run_ids(), sender.parent_url(), sender.pending()) == ({}, None, 0)
    sweep.begin()
    assert sender.pending() == 1
    assert sender.close(0.1) == 1


def test_a_second_sweep_of_the_same_name_has_runs_of_its_own(sweep: "Sweep") -> None:
    """Cleaned and made again, or another person's on the same server."""
    sweep.begin()
    with sending(sweep) as first:
        pass
    shutil.rmtree(sweep.folder)
    sweep.begin()
    with sending(sweep) as second:
        pass
    assert first.run_ids()["parent"] != second.run_ids()["parent"]


def test_another_experiment_on_resume_gets_everything(sweep: "Sweep") -> None:
    sweep.begin()
    trial = sweep.begin("trial-0000")
    trial.append_report(1, {"loss": 1.0})
    with sending(sweep):
        pass
    sweep.experiment = "elsewhere"
    trial.append_report(2, {"loss": 1.0})
    with sending(sweep):
        pass
    assert sweep.steps("trial-0000") == [1, 2]


def test_what_the_server_refuses_is_named_and_stops_nothing_else(sweep: "Sweep") -> None:
    sweep.begin()
    trial = sweep.begin("trial-0000")
    trial.append("artifact", path="/nowhere/best.pt", to="")
    trial.append_report(1, {"loss": 1.0})
    trial.append_report(2, {"bad\nname": 1.0})
    trial.append_report(3, {"loss": 1.0})
    with sending(sweep) as sender:
        pass
    assert sweep.steps("trial-0000") == [1, 3]
    assert [r.split(":")[0] for r in sender.refused] == [
        "trial-0000, event 1",
        "trial-0000, event 3",
    ]
    assert "/nowhere/best.pt is not there any more" in sender.refused[0]


def test_an_artifact_store_that_is_away_holds_nothing_up(sweep: "Sweep", root: Path) -> None:
    """The artifact is kept for later; metrics and the status go out; later it arrives."""
    (root / "report.html").write_text("report")
    (root / "mlartifacts").write_text("a file where the folder should be")
    parent = sweep.begin()
    parent.append("artifact", path=str(root / "report.html"), to="report")
    parent.append_report(1, {"loss": 1.0})
    parent.append("end", status="FINISHED", tags={})
    sender = Sender(sweep.folder, sweep.uri, sweep.experiment)
    sender.start()
    deadline = time.monotonic() + SECONDS
    while sender.pending() > 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sender.close(0.1) == 1
    assert sweep.run().info.status == "FINISHED"
    assert sender.last_error is not None
    (root / "mlartifacts").unlink()
    assert track_sync(sweep.folder, sweep.uri, sweep.experiment) == (1, 0)
    assert len(list((root / "mlartifacts").rglob("report/report.html"))) == 1


def test_runs_that_vanish_from_the_server_are_sent_again(
    sweep: "Sweep", root: Path, empty_database: Path
) -> None:
    """A database restored from before the sweep; found out at the next start."""
    sweep.begin()
    trial = sweep.begin("trial-0000")
    trial.append_report(1, {"loss": 1.0})
    with sending(sweep):
        pass
    other = root / "restored.db"
    shutil.copy(empty_database, other)
    cursors = sweep.folder / "spool" / "cursors.json"
    old = Sender(sweep.folder, sweep.uri, sweep.experiment)
    sweep.uri = f"sqlite:///{other}"
    new = Sender(sweep.folder, sweep.uri, sweep.experiment)
    state = cursors.read_text().replace(old._cursors._place, new._cursors._place)
    cursors.write_text(state)
    trial.append_report(2, {"loss": 1.0})
    with sending(sweep):
        pass
    assert sweep.steps("trial-0000") == [1, 2]


def test_a_run_that_the_user_deletes_stays_deleted(sweep: "Sweep") -> None:
    from mlflow import MlflowClient

    sweep.begin()
    trial = sweep.begin("trial-0000")
    with sending(sweep) as sender:
        pass
    MlflowClient(sweep.uri).delete_run(sender.run_ids()["trial-0000"])
    trial.append_report(1, {"loss": 1.0})
    with sending(sweep) as again:
        pass
    assert again.run_ids() == sender.run_ids()
    assert len(again.refused) == 1


def test_a_single_training_is_one_run(root: Path, sweep: "Sweep") -> None:
    sweep.folder = root / "runs" / "shoes-1"
    spool = sweep.spool()
    spool.append("start", params={}, tags={})
    spool.append_report(1, {"loss": 1.0})
    spool.append("end", status="FINISHED", tags={})
    with sending(sweep):
        pass
    run = sweep.run()
    assert run.info.status == "FINISHED"
    assert "mtcon.sweep" not in run.data.tags
    assert sweep.steps("parent") == [1]
