"""The sender against a real MLflow on SQLite: complete and nested runs with the right statuses."""

import math
import time
from unittest.mock import Mock

import pytest

from mtcon_ray.records.events import Artifact, Earlier, Ended, Lost, Reopened, Reported, Started
from tests.tracking.conftest import MLFLOW, Sweep

pytestmark = MLFLOW


def test_parent_and_child_are_nested_and_complete(sweep: Sweep) -> None:
    """With the user of the sweep, without the events that only the driver needs."""
    user = {"mlflow.user": "anna"}
    sweep.begin(**user).append(Earlier(source="old/trial-0000", params={}, value=0.5))
    trial = sweep.begin("trial-0000", **{"mtcon.version.torch": "2.15"})
    trial.append(Lost(reason="its node was lost"))
    trial.report(1, **{"loss": 2.0, "val/accuracy": 0.5, "sigma/heel-height": math.nan})
    here = {"mtcon.device": "Tesla T4"}
    second = {"loss": math.inf, "val/accuracy": 0.75, "sigma/heel-height": math.nan}
    trial.append(Reported(epoch=2, metrics=second, tags=here))
    trial.add_file("model.pt", "weights", to="checkpoints")
    trial.append(Ended(status="FINISHED", tags={"mtcon.value": "0.75"}))
    assert sweep.send().refused == []
    parent, child = sweep.run(), sweep.run("trial-0000")
    expected = {
        "mlflow.parentRunId": parent.info.run_id, "mtcon.sweep": "shoes-1",
        "mtcon.trial": "trial-0000", "mtcon.version.torch": "2.15", "mtcon.value": "0.75",
        **user, **here,
    }  # fmt: skip
    assert child.data.tags.items() >= expected.items()
    assert child.data.params == {"method.temperature": "0.1"}
    assert child.data.metrics["val/accuracy"] == 0.75
    assert math.isnan(child.data.metrics["sigma/heel-height"])
    assert child.info.status == "FINISHED"
    first, *_, last = trial.events()
    assert (child.info.start_time, child.info.end_time) == (first.time_ms, last.time_ms)
    assert sweep.steps("trial-0000") == [1, 2]
    sigma = sweep.client.get_metric_history(child.info.run_id, "sigma/heel-height")
    assert sorted(m.step for m in sigma) == [0, 1, 2]
    assert [m.value for m in sigma if m.step == 0] == [1.0]
    stored = list((sweep.folder.parents[1] / "mlartifacts").rglob("checkpoints/model.pt"))
    assert [p.read_text() for p in stored] == ["weights"]


def test_what_waits_is_written_in_few_calls(sweep: Sweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call is a round trip. The trial was interrupted and resumed while the server was away."""
    client = Mock(wraps=sweep.client)
    monkeypatch.setattr("mtcon_ray.tracking.mlflow_server.open_client", lambda uri: client)
    sweep.begin()
    sender = sweep.sender()
    sender.attempt()
    client.reset_mock()
    trial = sweep.begin("trial-0000")
    trial.report(*range(1, 9), **{f"m{i}": 0.5 for i in range(100)})
    trial.append(Ended(status="KILLED", tags={"mtcon.interrupted": "true"}))
    trial.append(Reopened())
    trial.report(9, m99=1.0)
    trial.append(Ended(status="FINISHED", tags={}))
    sender.attempt()
    assert [name for name, *_ in client.method_calls] == [
        *("create_run", "log_batch", "set_terminated"),
        *("get_run", "delete_tag", "update_run"),
        *("log_batch", "set_terminated"),
    ]
    assert sweep.run("trial-0000").info.status == "FINISHED"
    assert sweep.steps("trial-0000", "m99") == list(range(1, 10))


ENDS = [
    ("KILLED", {"mtcon.pruned": "true"}),
    ("KILLED", {"mtcon.interrupted": "true"}),
    ("FAILED", {"mtcon.reason": "gradient norm nan at step 7\n" + "x" * 10_000}),
]


@pytest.mark.parametrize(("status", "tags"), ENDS)
def test_statuses_are_true_until_a_reopen(sweep: Sweep, status: str, tags: dict[str, str]) -> None:
    trial = sweep.begin_both(1)
    trial.append(Ended(status=status, tags=tags))
    sweep.send()
    run = sweep.run("trial-0000")
    [(tag, value)] = tags.items()
    assert (run.info.status, run.data.tags[tag]) == (status, value[:5000])
    trial.append(Reopened())
    trial.report(2)
    sweep.send()
    again = sweep.run("trial-0000")
    assert again.info.run_id == run.info.run_id
    assert again.info.status == "KILLED", "its driver has ended"
    assert tag not in again.data.tags
    assert sweep.steps("trial-0000") == [1, 2]


def test_offline_sweep_is_sent_whole_afterwards(sweep: Sweep) -> None:
    """Each trial has more metrics than a call of MLflow takes. The last has no end event.

    A kill has cut the last line of the log, which is not waited for.
    """
    names, parent = [f"trial-{number:04d}" for number in range(3)], sweep.begin()
    for name in names:
        trial = sweep.begin(name)
        trial.report(*range(1, 101), **{f"m{i}": 0.5 for i in range(30)})
        if name != names[-1]:
            trial.append(Ended(status="FINISHED", tags={}))
    parent.append(Ended(status="FINISHED", tags={}))
    with parent.path.open("ab") as file:
        file.write(b'{"kind": "rep')
    assert sweep.sender().pending() == 3 * 102 - 1 + 2
    sweep.send()
    assert sweep.sender().pending() == 0
    assert [sweep.steps(name, "m29") for name in names] == [[*range(1, 101)]] * 3
    statuses = [sweep.run(name).info.status for name in ("parent", *names)]
    assert statuses == ["FINISHED", "FINISHED", "FINISHED", "KILLED"]


def test_what_the_server_refuses_is_named_and_stops_nothing_else(sweep: Sweep) -> None:
    sweep.begin()
    trial = sweep.spool("trial-0000")
    trial.append(Started(params={"bad\nparam": 1, "data.tasks": "x" * 10_000}, tags={}))
    trial.append(Artifact(path="/nowhere/model.pt", to=""))
    trial.report(1)
    long = "x" * 300
    for epoch in range(2, 6):
        trial.append(Reported(epoch=epoch, metrics={"bad\nname": 1.0, "loss": 1.0, long: 1.0}))
    trial.append(Ended(status="FINISHED", tags={"bad\ntag": "x", "mtcon.value": "0.5"}))
    sender = sweep.send()
    assert sweep.steps("trial-0000") == [1, 2, 3, 4, 5]
    run = sweep.run("trial-0000")
    assert (run.info.status, run.data.tags["mtcon.value"]) == ("FINISHED", "0.5")
    assert run.data.params == {"data.tasks": "x" * 5000}, "cut to what every server takes"
    names = ("param 'bad", "metric 'bad", f"metric '{long[:80]}', from this epoch on: ")
    for name in (*names, "runtag 'bad", "/nowhere/model.pt is not there any more"):
        assert any(text.startswith(f"trial-0000: {name}") for text in sender.refused), name
    assert len(sender.refused) < 14, "a name that was refused is not sent again"


def test_a_damaged_line_is_told_and_what_is_before_it_is_sent(sweep: Sweep) -> None:
    log = sweep.begin()
    sweep.begin("trial-0000").report(1)
    sender = sweep.sender()
    sender.attempt()
    with log.path.open("ab") as file:
        file.write(b"no event\n")
    sender.attempt()
    assert sweep.steps("trial-0000") == [1]
    assert "events.jsonl is damaged" in sender.reason
    assert sender.pending() == 1


def test_an_epoch_that_was_trained_again_is_in_mlflow_once(sweep: Sweep) -> None:
    """The log was cut after the epoch was sent. Its new line has another time and value."""
    trial = sweep.begin_both()
    trial.report(1, loss=1.0, lr=0.1)
    before = trial.path.read_bytes()
    trial.report(2, loss=0.5, lr=0.1)
    sweep.send()
    trial.path.write_bytes(before)
    time.sleep(0.01)
    with sweep.sending():
        trial.report(2, 3, loss=0.6, lr=0.1)
    assert sweep.steps("trial-0000") == sweep.steps("trial-0000", "lr") == [1, 2, 3]
