"""No event is lost or duplicated after kills, wiped servers, changed experiments and outages."""

import math
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.records.events import Ended, Started
from tests.tracking.conftest import MLFLOW, Sweep
from tests.tracking.mlflow_server import Server
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = MLFLOW


def test_killed_between_sending_and_remembering(sweep: Sweep) -> None:
    """With an old cursor file every event is sent twice, and MLflow has each once."""
    trial = sweep.begin_both()
    trial.report(1, loss=math.nan, lr=0.1)
    sweep.send()
    cursors = sweep.folder / "sent.json"
    old = cursors.read_bytes()
    trial.report(2, 3, loss=2.0, lr=0.1)
    trial.append(Ended(status="KILLED", tags={"mtcon.pruned": "true"}))
    sweep.send()
    before = sweep.run("trial-0000")
    for state in (old, b"{torn"):
        cursors.write_bytes(state)
        sweep.send()
    cursors.unlink()
    sweep.send()
    assert sweep.steps("trial-0000") == sweep.steps("trial-0000", "lr") == [1, 2, 3]
    assert sweep.run("trial-0000").to_dictionary() == before.to_dictionary()


@pytest.mark.parametrize("later", [0, 300])
def test_a_log_that_was_cut_for_a_repair_is_sent_again(sweep: Sweep, later: int) -> None:
    """The damaged line and all after it were removed, and the saved position was behind them.

    With `later` the log has grown beyond that position before the next sender begins.
    """
    trial = sweep.begin_both(1, 2, 3)
    sweep.send()
    trial.path.write_bytes(b"".join(trial.path.read_bytes().splitlines(keepends=True)[:4]))
    trial.append(Ended(status="FAILED", tags={"mtcon.reason": "x" * later}))
    assert sweep.sender().pending() == 5
    sweep.send()
    assert sweep.steps("trial-0000") == [1, 2, 3]
    assert sweep.run("trial-0000").info.status == "FAILED"


def test_a_position_behind_a_cut_counts_no_more_once_a_driver_has_begun(sweep: Sweep) -> None:
    """The driver was killed before it sent anything, and its log ends where the old one did."""
    trial = sweep.begin()
    trial.report(1, loss=2.0)
    sweep.send()
    whole = trial.path.read_bytes()
    trial.path.write_bytes(whole[: whole.index(b"\n") + 1])
    sweep.sender()
    trial.path.write_bytes(whole.replace(b'"loss": 2.0', b'"loss": 3.0'))
    assert sweep.sender().pending() == 2


def test_a_copy_below_another_root_sends_its_own_files(sweep: Sweep, root: Path) -> None:
    """The event logs name the files where they were; the same paths are another sweep's now.

    The path of the old root contains `sweeps/shoes-1` too.
    """
    new, old = root / "new" / "sweeps" / "shoes-1", sweep.folder / "sweeps" / "shoes-1"
    sweep.folder = old
    sweep.begin().add_file("model.pt", "own")
    shutil.copytree(old, new)
    (old / "model.pt").write_text("of another sweep")
    sweep.folder = new
    assert sweep.send().refused == []
    sent = [p.read_text() for p in (root / "new" / "mlartifacts").rglob("*") if p.is_file()]
    assert sent == ["own"]


def test_a_run_of_a_late_request_is_deleted(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request failed for the client. The server carried it out after all was sent."""
    from mlflow import MlflowClient

    sweep.begin_both(1)
    create, late = MlflowClient.create_run, list[Callable[[], object]]()

    def fails_once(client: MlflowClient, *args: Any, **options: Any) -> Any:
        if options["run_name"].endswith("/trial-0000") and not late:
            late.append(lambda: create(client, *args, **options))
            raise ConnectionError("no answer")
        return create(client, *args, **options)

    monkeypatch.setattr(MlflowClient, "create_run", fails_once)
    with sweep.sending() as sender:
        wait_until(lambda: not sender.pending(), "all events in MLflow")
        late[0]()
    assert sweep.steps("trial-0000") == [1]


def test_a_server_wiped_while_it_sends_gets_everything_anew(sweep: Sweep) -> None:
    trial = sweep.begin_both(1)
    with sweep.sending() as sender:
        wait_until(lambda: not sender.pending(), "the first epoch in MLflow")
        old = sweep.id()
        for table in ("metrics", "latest_metrics", "params", "tags", "runs", "experiment_tags"):
            sweep.execute(f"DELETE FROM {table}")
        sweep.execute("DELETE FROM experiments WHERE name = ?", sweep.experiment)
        trial.report(2)
    assert sweep.run("trial-0000").data.tags["mlflow.parentRunId"] == sweep.id() != old
    assert sweep.steps("trial-0000") == [1, 2]


def test_a_second_sweep_of_the_same_name_has_runs_of_its_own(sweep: Sweep) -> None:
    """The folder was deleted and created again, or it is another user's on the same server."""
    sweep.begin()
    sweep.send()
    shutil.rmtree(sweep.folder)
    sweep.begin()
    sweep.send()
    assert len(sweep.runs()) == 2


def test_another_experiment_on_resume_gets_everything(sweep: Sweep) -> None:
    """The first experiment gets everything too when the user returns to it."""
    trial = sweep.begin_both(1)
    sweep.send()
    sweep.experiment = "elsewhere"
    trial.report(2)
    sweep.send()
    assert sweep.steps("trial-0000") == [1, 2]
    sweep.experiment = "tests"
    sweep.send()
    assert sweep.steps("trial-0000") == [1, 2]


@pytest.mark.parametrize("was_killed", [False, True])
def test_another_configuration_gets_a_run_of_its_own(sweep: Sweep, was_killed: bool) -> None:
    """A log restored from a backup lacked the trial. The same one again keeps its run.

    The driver may have been killed after it deleted the other run, before it made the next.
    """
    trial = sweep.begin_both(1, 2)
    trial.append(Ended(status="FINISHED", tags={}))
    sweep.send()
    parent, first = sweep.id(), sweep.id("trial-0000")
    (sweep.folder / "sent.json").unlink()
    sweep.send()
    assert (sweep.id(), sweep.id("trial-0000")) == (parent, first)
    trial.remove()
    trial.append(Started(params={"method.temperature": 0.5}, tags={}))
    trial.report(1, loss=3.0)
    if was_killed:
        sweep.client.delete_run(first)
    for _ in range(2):
        (sweep.folder / "sent.json").unlink()
        assert sweep.send().refused == []
        run = sweep.run("trial-0000")
        assert run.info.run_id != first
        assert run.data.params == {"method.temperature": "0.5"}
        assert run.data.metrics == {"loss": 3.0}
        assert sweep.steps("trial-0000") == [1]
    assert sweep.id() == parent


def test_a_lost_artifact_store_holds_up_logs_with_artifacts_alone(sweep: Sweep, root: Path) -> None:
    """The metrics of other trials are sent, and the rest when the store is back."""
    (root / "mlartifacts").write_text("a file where the folder should be")
    parent = sweep.begin()
    parent.add_file("report.html", to="report")
    parent.append(Ended(status="FINISHED", tags={}))
    sender = sweep.sender()
    sender.attempt()
    sweep.begin("trial-0000").report(1)
    sender.attempt()
    assert sweep.steps("trial-0000") == [1]
    assert sender.last_error is not None
    assert sender.pending() == 2
    (root / "mlartifacts").unlink()
    sweep.send()
    assert sweep.run().info.status == "FINISHED"
    assert len(list((root / "mlartifacts").rglob("report/report.html"))) == 1


@pytest.mark.parametrize("what", ["run", "experiment"])
def test_what_the_user_deletes_is_held_back_until_it_is_restored(
    sweep: Sweep, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The other runs are sent meanwhile; no new run is created, and one line names the way out."""
    sweep.begin()
    trial, other = sweep.begin("trial-0000"), sweep.begin("trial-0001")
    client = sweep.client
    sweep.send()
    run_id, experiment = sweep.id("trial-0000"), sweep.run().info.experiment_id
    sender = sweep.sender()
    sender.attempt()  # else the thread may connect after the deletion, and would hold all runs
    sender.start()
    given, num_left = {"run": (run_id, 4), "experiment": (experiment, 5)}[what]
    getattr(client, f"delete_{what}")(given)
    trial.report(1, 2, 3)
    wait_until(lambda: "trial-0000" in sender.held, "a held run")
    trial.append(Ended(status="FINISHED", tags={}))
    other.report(1)
    begin = time.monotonic()
    left = sender.close(PATIENCE_SECONDS)
    assert time.monotonic() - begin < PATIENCE_SECONDS / 4, "a held run is not waited for"
    command = f"MLFLOW_TRACKING_URI={sweep.uri} mlflow {what}s restore"
    assert re.search(rf"{command} (--run-id|-x) {given}`", sender.reason)
    assert sender.refused == []
    assert sum(command in record.message for record in caplog.records) == 1
    # The events of other runs behind the first held event are sent again, without effect.
    assert command in sweep.send(left=left).reason
    assert left == num_left
    if what == "run":
        assert sweep.steps("trial-0001") == [1]
    getattr(client, f"restore_{what}")(given)
    sweep.send()
    assert [sweep.steps(f"trial-000{n}") for n in (0, 1)] == [[1, 2, 3], [1]]
    assert sweep.id("trial-0000") == run_id
    assert sweep.run("trial-0000").info.status == "FINISHED"


def test_server_killed_and_restarted_in_mid_sweep(server: Server, sweep: Sweep) -> None:
    """Training does not wait.

    Afterwards no event is lost, no step is duplicated, and each status is right.
    """
    server.start()
    sweep.uri = server.uri
    parent = sweep.begin()
    first = sweep.begin("trial-0000")
    sender = sweep.sender()
    sender.start()
    first.report(1, 2, 3)
    wait_until(lambda: not sender.pending(), "the first epochs in MLflow")
    ids = sweep.id(), sweep.id("trial-0000")

    first.report(4, 5, 6)  # the kill falls between these epochs and the next events
    server.kill()
    begin = time.monotonic()
    first.append(Ended(status="KILLED", tags={"mtcon.pruned": "true"}))
    second = sweep.begin("trial-0001")
    second.report(1, 2, 3, 4, 5, loss=math.nan)
    parent.add_file("report.html", to="report")
    wait_until(lambda: sender.last_error is not None, "a failed attempt")
    assert sender.pending() >= 8
    assert time.monotonic() - begin < 10
    # The second message appears if the server dies in the middle of an answer.
    assert re.search("Connection refused|HTTPConnectionPool", str(sender.last_error))

    server.start()
    second.append(Ended(status="FINISHED", tags={}))
    parent.append(Ended(status="FINISHED", tags={}))
    assert sender.close(PATIENCE_SECONDS) == 0, sender.last_error
    assert sender.refused == []
    assert [sweep.steps(f"trial-000{n}") for n in (0, 1)] == [[*range(1, 7)], [*range(1, 6)]]
    assert (sweep.id(), sweep.id("trial-0000")) == ids
    assert sweep.run("trial-0000").data.tags["mtcon.pruned"] == "true"
    assert sweep.run("trial-0001").data.tags["mlflow.parentRunId"] == sweep.id()
    names = ("trial-0000", "trial-0001", "parent")
    assert [sweep.run(name).info.status for name in names] == ["KILLED", "FINISHED", "FINISHED"]
    assert len(list((server.root / "server-artifacts").rglob("report/report.html"))) == 1
