"""The event log after kills, with several writers, and with NaN and infinite metrics."""

import errno
import fcntl
import json
import math
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcon_ray.errors import SweepError
from mtcon_ray.records import event_log
from mtcon_ray.records.event_log import EventLog, identity, num_events, tail
from mtcon_ray.records.events import Artifact, Ended, Reopened, Reported, Started

FORMAT_1 = (
    '{"seq": 0, "kind": "start", "params": {"a": 0.5}, "tags": {"'
    'b": "c"}, "note": "n", "time_ms": 1}\n'
    '{"seq": 1, "kind": "report", "epoch": 1, "metrics": {"loss": "inf"}, "time_ms": 2}\n'
    '{"seq": 2, "kind": "artifact", "path": "/a", "to": "", "time_ms": 3}\n'
    '{"seq": 3, "kind": "end", "status": "KILLED", "tags": {}, "time_ms": 4}\n'
)
IDENTITY = "d99e3e9466aebfed97b37bd515f934c7"


@pytest.fixture
def spool(tmp_path: Path) -> EventLog:
    return EventLog(tmp_path / "spool" / "trial-0000.jsonl")


def test_an_epoch_behind_an_end_is_refused_until_the_run_goes_on(tmp_path: Path) -> None:
    """Workers of a stopped trial may train on for a moment."""
    spool, worker = EventLog(tmp_path / "a.jsonl"), EventLog(tmp_path / "a.jsonl")
    spool.append(Started(params={}, tags={}))
    assert worker.append(Reported(epoch=1, metrics={"loss": 1.0}))
    spool.append(Ended(status="KILLED", tags={}))
    assert not worker.append(Reported(epoch=2, metrics={"loss": 1.0}))
    spool.append(Reopened())
    assert worker.append(Reported(epoch=2, metrics={"loss": 1.0}))


def test_events_are_numbered_strict_json(spool: EventLog) -> None:
    spool.append(Started(params={"method.temperature": 0.1}, tags={"mtcon.seed": "0"}))
    spool.append(Reported(epoch=1, metrics={"loss": 2.5}))
    spool.append(Artifact(path="/a/model.pt", to="checkpoints"))
    spool.append(Ended(status="FINISHED", tags={}))
    events = [json.loads(line) for line in spool.path.read_text().splitlines()]
    assert [e["seq"] for e in events] == [0, 1, 2, 3]
    assert [e["kind"] for e in events] == ["start", "report", "artifact", "end"]
    assert events[0]["params"] == {"method.temperature": 0.1}
    assert events[1]["epoch"] == 1
    assert events[1]["time_ms"] > 1_600_000_000_000
    assert "note" not in events[0]
    assert events == [event.to_json() for event in spool.events()]


def test_lines_of_format_version_1_are_read_and_keep_their_identity(tmp_path: Path) -> None:
    """The lines were written by version 0.1.0; their MLflow runs carry this identity as a tag."""
    path = tmp_path / "trial-0000.jsonl"
    path.write_text(FORMAT_1)
    start, report, artifact, end = EventLog.read(path)
    assert start == Started(params={"a": 0.5}, tags={"b": "c"}, note="n", time_ms=1)
    assert report == Reported(epoch=1, metrics={"loss": math.inf}, seq=1, time_ms=2)
    assert artifact == Artifact(path="/a", to="", seq=2, time_ms=3)
    assert end == Ended(status="KILLED", tags={}, seq=3, time_ms=4)
    lines = "".join(json.dumps(e.to_json()) + "\n" for e in (start, report, artifact, end))
    assert lines == FORMAT_1
    assert identity(path) == IDENTITY


def test_constructing_and_reading_touch_nothing(spool: EventLog) -> None:
    assert spool.events() == []
    assert spool.last_epoch == 0
    assert not spool.path.parent.exists()


def test_an_epoch_is_reported_once(spool: EventLog) -> None:
    """A resumed trial that repeats epochs after its checkpoint keeps the first report of each."""
    spool.append(Started(params={}, tags={}))
    assert spool.append(Reported(epoch=1, metrics={"loss": 3.0}))
    assert spool.append(Reported(epoch=2, metrics={"loss": 2.0}))
    again = EventLog(spool.path)
    assert again.last_epoch == 2
    assert not again.append(Reported(epoch=1, metrics={"loss": 9.0}))
    assert not again.append(Reported(epoch=2, metrics={"loss": 9.0}))
    assert again.append(Reported(epoch=3, metrics={"loss": 1.0}))
    assert [e.to_json()["metrics"] for e in again.events()[1:]] == [
        {"loss": x} for x in (3.0, 2.0, 1.0)
    ]


def test_start_is_written_once(spool: EventLog) -> None:
    assert spool.append(Started(params={"a": 1}, tags={}))
    assert not EventLog(spool.path).append(Started(params={"a": 2}, tags={}))
    assert [e.to_json()["params"] for e in spool.events()] == [{"a": 1}]


def test_two_writers_one_after_the_other(spool: EventLog) -> None:
    """The driver's object was created before the trial wrote; its events continue the numbering."""
    driver = EventLog(spool.path)
    driver.append(Started(params={}, tags={}))
    spool.append(Reported(epoch=1, metrics={"loss": 1.0}))
    driver.append(Ended(status="KILLED", tags={"mtcon.pruned": "true"}))
    spool.append(Reopened())
    assert [e.seq for e in driver.events()] == [0, 1, 2, 3]
    assert not driver.append(Reported(epoch=1, metrics={"loss": 1.0}))


def test_two_writers_at_the_same_time_lose_no_line(
    spool: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of a stopped trial is slow to write its report, and the driver ends the trial."""
    driver, worker = EventLog(spool.path), spool
    driver.append(Started(params={}, tags={}))
    end = Thread(target=driver.append, args=(Ended(status="KILLED", tags={}),))
    write = event_log.append_durably

    def write_late(*args: Any) -> None:
        monkeypatch.setattr(event_log, "append_durably", write)
        end.start()
        end.join(0.3)  # without a lock the end is written here, and then cut off by the report
        write(*args)

    monkeypatch.setattr(event_log, "append_durably", write_late)
    assert worker.append(Reported(epoch=1, metrics={"loss": 1.0}))
    end.join()
    events = driver.events()
    assert [(e.seq, e.kind) for e in events] == [(0, "start"), (1, "report"), (2, "end")]


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_written_to(
    spool: EventLog, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(code, "")))
    assert spool.append(Started(params={}, tags={}))
    assert len(spool.events()) == 1


def test_a_lock_that_is_never_released_is_waited_for_once(
    spool: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer hangs, or its node is lost with the lock."""
    monkeypatch.setattr(event_log, "LOCK_ATTEMPTS", 2)
    spool.append(Started(params={}, tags={}))
    with spool.path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert spool.append(Ended(status="KILLED", tags={}))
    assert len(spool.events()) == 2


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_torn_last_line_is_dropped_and_cut_off(spool: EventLog, kept: int) -> None:
    """A kill -9 during a write leaves any part of the last line, even all except the newline."""
    spool.append(Started(params={}, tags={}))
    spool.append(Reported(epoch=1, metrics={"loss": 1.0}))
    whole = spool.path.read_bytes()
    first, second, _ = whole.split(b"\n")
    spool.path.write_bytes(first + b"\n" + (second[:kept] if kept != -1 else second))
    after = EventLog(spool.path)
    assert len(after.events()) == 1
    assert after.append(Reported(epoch=1, metrics={"loss": 2.0}))
    assert [e.seq for e in after.events()] == [0, 1]
    assert after.events()[1].to_json()["metrics"] == {"loss": 2.0}


def test_not_finite_metrics_survive_as_strict_json(spool: EventLog) -> None:
    spool.append(
        Reported(epoch=1, metrics={"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})
    )
    line = json.loads(spool.path.read_text(), parse_constant=pytest.fail)
    assert line["metrics"] == {"a": "nan", "b": "inf", "c": "-inf", "d": 1.0}
    (event,) = spool.events()
    assert isinstance(event, Reported)
    a, b, c, d = event.metrics.values()
    assert math.isnan(a)
    assert (b, c, d) == (math.inf, -math.inf, 1.0)


def test_tail_gives_offsets_to_go_on_from(spool: EventLog) -> None:
    spool.append(Started(params={"text": "Schuhe\n\u2028 größe"}, tags={}))
    [(_, end)] = tail(spool.path)
    assert end == spool.path.stat().st_size
    spool.append(Reported(epoch=1, metrics={"loss": 1.0}))
    [(event, _)] = tail(spool.path, end)
    assert isinstance(event, Reported)
    assert (num_events(spool.path, 0), num_events(spool.path, end)) == (2, 1)


@pytest.mark.parametrize(
    "line",
    [
        b"\0\0\0\n",
        b"[1]\n",
        b"[" * 100_000 + b"\n",
        b'{"kind": "lunch"}\n',
        b'{"kind": "end"}\n',
        b'{"kind": "end", "status": "FINISHED", "tags": null}\n',
        b'{"kind": "report", "epoch": "2", "metrics": {}}\n',
        b'{"kind": "reopen", "seq": "2"}\n',
    ],
)
def test_a_line_that_is_no_event_is_named(spool: EventLog, line: bytes) -> None:
    spool.append(Started(params={}, tags={}))
    size = spool.path.stat().st_size
    with spool.path.open("ab") as file:
        file.write(line)
    with pytest.raises(
        SweepError, match=rf"trial-0000.jsonl is damaged: .* at byte {size} .*; cut"
    ):
        EventLog.read(spool.path)


def test_an_event_of_a_later_version_is_no_damage_to_be_cut_off(spool: EventLog) -> None:
    spool.append(Started(params={}, tags={}))
    with spool.path.open("ab") as file:
        file.write(b'{"seq": 1, "kind": "lunch", "time_ms": 3}\n')
    with pytest.raises(SweepError, match=r"kind 'lunch' at byte .* a later version") as error:
        EventLog.read(spool.path)
    assert "cut" not in str(error.value)


def test_a_value_that_is_not_json_is_our_bug_and_writes_nothing(spool: EventLog) -> None:
    with pytest.raises(TypeError):
        spool.append(Started(params={"path": Path("/a")}, tags={}))
    assert spool.events() == []


@settings(deadline=None, derandomize=True, max_examples=30)
@given(cut=st.integers(0, 2000), epochs=st.integers(1, 6))
def test_cut_anywhere_and_repeated_it_is_as_if_never_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int, epochs: int
) -> None:
    """A run that is killed at any byte and repeats all its events ends with each event once."""
    path = tmp_path_factory.mktemp("spool") / "trial-0000.jsonl"
    for _ in range(2):
        spool = EventLog(path)
        spool.append(Started(params={}, tags={}))
        for epoch in range(1, epochs + 1):
            spool.append(Reported(epoch=epoch, metrics={"loss": float(epoch)}))
        path.write_bytes(path.read_bytes()[:cut]) if _ == 0 else None
    events = EventLog.read(path)
    assert [e.seq for e in events] == list(range(epochs + 1))
    assert [e.to_json().get("epoch") for e in events[1:]] == list(range(1, epochs + 1))


def test_an_artifact_after_an_end_does_not_open_a_run_again(tmp_path: Path) -> None:
    """A worker of a stopped trial may still report then."""
    log = EventLog(tmp_path / "trial.jsonl")
    for event in (Started(params={}, tags={}), Ended(status="KILLED", tags={})):
        log.append(event)
    log.append(Artifact(path="/a", to=""))
    assert not log.append(Reported(epoch=1, metrics={"loss": 1.0}))


def test_times_never_decrease_if_the_clock_is_set_back(
    spool: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter((2_000_000_000, 1_000_000_000))
    monkeypatch.setattr("mtcon_ray.records.event_log.time.time_ns", lambda: next(times))
    spool.append(Started(params={}, tags={}))
    spool.append(Reported(epoch=1, metrics={"loss": 1.0}))
    assert [event.time_ms for event in spool.events()] == [2000, 2000]
