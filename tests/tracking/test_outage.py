"""A real MLflow server that is killed and restarted during a sweep."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtcon_ray.records.events import Artifact, Ended, Reported
from mtcon_ray.tracking.sender import Sender
from tests.tracking.conftest import MLFLOW, Sweep
from tests.tracking.mlflow_server import Server
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = MLFLOW


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    server = Server(root)
    yield server
    server.kill()


def test_server_killed_and_restarted_in_mid_sweep(server: Server, sweep: Sweep) -> None:
    """Training does not wait.

    Afterwards no event is lost, no step is duplicated, and each status is right.
    """
    server.start()
    parent = sweep.begin()
    report = sweep.folder / "report.html"
    report.write_text("report")
    first = sweep.begin("trial-0000")
    sender = Sender(sweep.folder, server.uri, sweep.experiment)
    sender.start()
    for epoch in range(1, 4):
        first.append(Reported(epoch=epoch, metrics={"loss": 1.0, "lr": 0.1}))
    wait_until(lambda: not sender.pending(), "the first epochs in MLflow")
    ids = sender.run_ids()

    for epoch in range(4, 7):  # the kill falls between these epochs and the next events
        first.append(Reported(epoch=epoch, metrics={"loss": 1.0, "lr": 0.1}))
    server.kill()
    begin = time.monotonic()
    first.append(Ended(status="KILLED", tags={"mtcon.pruned": "true"}))
    second = sweep.begin("trial-0001")
    for epoch in range(1, 6):
        second.append(Reported(epoch=epoch, metrics={"loss": float("nan"), "lr": 0.1}))
    parent.append(Artifact(path=str(report), to="report"))
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
    sweep.uri = server.uri
    assert sweep.steps("trial-0000") == [1, 2, 3, 4, 5, 6]
    assert sweep.steps("trial-0001") == [1, 2, 3, 4, 5]
    assert sweep.run("trial-0000").info.run_id == ids["trial-0000"]
    assert sweep.run("trial-0000").info.status == "KILLED"
    assert sweep.run("trial-0000").data.tags["mtcon.pruned"] == "true"
    assert sweep.run("trial-0001").info.status == "FINISHED"
    assert sweep.run("trial-0001").data.tags["mlflow.parentRunId"] == ids["parent"]
    assert sweep.run().info.status == "FINISHED"
    stored = list((server.root / "server-artifacts").rglob("report/report.html"))
    assert len(stored) == 1
