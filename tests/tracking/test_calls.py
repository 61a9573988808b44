"""Number of calls of MLflow's client per run, since each is a round trip to a remote server."""

from typing import Any

import pytest

from mtcon_ray.records.events import Ended, Reopened, Reported, Started
from mtcon_ray.tracking.mlflow_server import open_client
from mtcon_ray.tracking.sender import Sender
from tests.tracking.conftest import MLFLOW, Sweep

pytestmark = MLFLOW


class Counted:
    """MLflow's client with a list of the names of its calls, in order."""

    def __init__(self, client: Any, calls: list[str]) -> None:
        self._client, self._calls = client, calls

    def __getattr__(self, name: str) -> Any:
        self._calls.append(name)
        return getattr(self._client, name)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the list of the client's calls."""
    made: list[str] = []
    monkeypatch.setattr(
        "mtcon_ray.tracking.mlflow_server.open_client", lambda uri: Counted(open_client(uri), made)
    )
    return made


def sent(sweep: Sweep, calls: list[str]) -> list[str]:
    """Sends all events and returns the client's calls after those that find the folder's runs."""
    del calls[:]
    Sender(sweep.folder, sweep.uri, sweep.experiment).attempt()
    return calls[calls.index("search_runs") + 1 :]


def test_a_whole_run_is_made_written_and_ended_in_three_calls(
    sweep: Sweep, calls: list[str]
) -> None:
    sweep.begin()
    sent(sweep, calls)
    trial = sweep.spool("trial-0000")
    trial.append(Started(params={"method.temperature": 0.1}, tags={}, note="Begun."))
    for epoch in range(1, 9):
        trial.append(Reported(epoch=epoch, metrics={f"m{i}": i + epoch for i in range(100)}))
    trial.append(Ended(status="FINISHED", tags={"mtcon.value": "0.75"}, note="Done."))
    assert sent(sweep, calls) == ["create_run", "log_batch", "set_terminated"]
    run = sweep.run("trial-0000")
    assert run.data.params == {"method.temperature": "0.1"}
    assert run.data.tags["mtcon.value"] == "0.75"
    assert run.data.tags["mlflow.note.content"].startswith("Done.")
    assert run.info.status == "FINISHED"
    assert sweep.steps("trial-0000", "m99") == list(range(1, 9))


def test_what_came_after_an_end_is_written_after_it(sweep: Sweep, calls: list[str]) -> None:
    """A trial was interrupted and resumed while the server was down."""
    sweep.begin()
    sent(sweep, calls)
    trial = sweep.begin("trial-0000")
    trial.append(Reported(epoch=1, metrics={"loss": 2.0}))
    trial.append(Ended(status="KILLED", tags={"mtcon.interrupted": "true"}))
    trial.append(Reopened())
    trial.append(Reported(epoch=2, metrics={"loss": 1.0}))
    trial.append(Ended(status="FINISHED", tags={}))
    assert sent(sweep, calls) == [
        *("create_run", "log_batch", "set_terminated"),
        *("get_run", "delete_tag", "update_run"),
        *("log_batch", "set_terminated"),
    ]
    run = sweep.run("trial-0000")
    assert run.info.status == "FINISHED"
    assert "mtcon.interrupted" not in run.data.tags
    assert sweep.steps("trial-0000") == [1, 2]
