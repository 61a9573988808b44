"""The event log after kills, on a full disk, and with NaN and infinite metrics."""

import errno
import json
import math
import os
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.errors import StorageError, SweepError
from mtcon_ray.records import event_log
from mtcon_ray.records.event_log import EventLog, num_events, read_events
from mtcon_ray.records.events import Artifact, Ended, Lost, Reported, Started

FORMAT_1 = (
    '{"kind": "start", "params": {"a": 0.5}, "tags": {"b": "c"}, "note": "n", "time_ms": 1}\n'
    '{"kind": "report", "trial": "trial-0000", "epoch": 1, "metrics": {"loss": "inf"}, '
    '"time_ms": 2}\n'
    '{"kind": "artifact", "path": "/a", "to": "", "time_ms": 3}\n'
    '{"kind": "end", "status": "KILLED", "tags": {}, "time_ms": 4}\n'
)
START = Started(params={}, tags={})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sweeps" / "a" / "events.jsonl"


def report(epoch: int, **metrics: float) -> Reported:
    return Reported(trial="trial-0000", epoch=epoch, metrics=metrics)


def test_events_are_strict_json_with_their_trial(path: Path) -> None:
    log = EventLog(path)
    log.append(Started(params={"method.temperature": 0.1}, tags={"mtcon.seed": "0"}))
    log.append_lines([report(1, a=math.nan, b=math.inf, c=-math.inf, d=1).to_line()])
    log.append(Lost(trial="trial-0000", reason="no file \udc80.jpg"))
    log.append(Ended(status="FINISHED", tags={}))
    lines = [json.loads(text, parse_constant=pytest.fail) for text in path.read_text().splitlines()]
    assert lines[1]["metrics"] == {"a": "nan", "b": "inf", "c": "-inf", "d": 1.0}
    assert [(e["kind"], e.get("trial")) for e in lines] == [
        ("start", None), ("report", "trial-0000"), ("lost", "trial-0000"), ("end", None),
    ]  # fmt: skip
    assert lines[0]["time_ms"] > 1_600_000_000_000
    assert "settings" not in lines[0]
    events = read_events(path)
    assert lines == [json.loads(event.to_line()) for event in events]
    assert event_log.by_trial(events) == {None: [events[0], events[3]], "trial-0000": events[1:3]}


def test_lines_of_format_version_1_are_read_and_keep_their_identity(path: Path) -> None:
    """The lines were written by version 0.1.0; their MLflow runs carry this identity as a tag."""
    path.parent.mkdir(parents=True)
    path.write_text(FORMAT_1)
    assert read_events(path) == [
        Started(params={"a": 0.5}, tags={"b": "c"}, time_ms=1),
        Reported(trial="trial-0000", epoch=1, metrics={"loss": math.inf}, time_ms=2),
        Artifact(path="/a", to="", time_ms=3),
        Ended(status="KILLED", tags={}, time_ms=4),
    ]
    lines = [json.loads(line) for line in FORMAT_1.splitlines()]
    del lines[0]["note"]  # later versions write none
    assert [json.loads(event.to_line()) for event in read_events(path)] == lines
    assert event_log.identity(path) == "0c8f4cabed8b012d834e21e12fd5ecd1"


def test_reading_and_a_value_that_is_not_json_write_nothing(path: Path) -> None:
    log = EventLog(path)
    assert (read_events(path), event_log.first_event(path), num_events(path, 0)) == ([], None, 0)
    assert not path.parent.exists()
    with pytest.raises(TypeError):
        log.append(Started(params={"path": Path("/a")}, tags={}))
    assert not path.exists()


def test_reports_are_durable_a_second_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, synced = 100.0, list[float]()
    monkeypatch.setattr("mtcon_ray.records.event_log.time.monotonic", lambda: now)
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(now))
    log = EventLog(path)
    log.append(START)
    log.append_lines([report(1).to_line()])
    now = 100.5
    log.append_lines([report(2).to_line()])
    log.tick()
    assert synced == [100.0]
    now = 101.0
    log.tick()
    log.tick()
    assert synced == [100.0, 101.0]
    log.append(Ended(status="FINISHED", tags={}))
    assert synced == [100.0, 101.0, 101.0]


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_a_torn_last_line_is_not_read_and_replaced(path: Path, kept: int) -> None:
    """A kill -9 during a write leaves any part of the last line, even all except the newline."""
    EventLog(path).append(START, report(1, loss=1.0))
    first, second, _ = path.read_bytes().split(b"\n")
    path.write_bytes(first + b"\n" + (second[:kept] if kept != -1 else second))
    assert len(read_events(path)) == num_events(path, 0) == 1
    log = EventLog(path)
    assert log.end == len(first) + 1
    log.append(report(1, loss=2.0))
    assert [vars(e).get("metrics") for e in read_events(path)] == [None, {"loss": 2.0}]


def test_a_full_disk_cuts_no_event(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(path)
    log.append(START)
    before = path.read_bytes()

    class Full(FileIO):
        def write(self, data: Any) -> int:
            return super().write(bytes(data)[:5])

    with monkeypatch.context() as patch:
        patch.setattr(event_log, "open", lambda *_, **__: Full(path, "a"), raising=False)
        with pytest.raises(StorageError, match=os.strerror(errno.ENOSPC)):
            log.append(report(1))
    assert path.read_bytes() == before
    log.append(report(1))
    assert len(read_events(path)) == 2


def test_tail_gives_offsets_to_go_on_from(path: Path) -> None:
    log = EventLog(path)
    log.append(Started(params={"text": "Schuhe\n\u2028 größe"}, tags={}))
    [(_, end)] = event_log.tail(path)
    assert end == path.stat().st_size
    log.append(report(1, loss=1.0), report(2, loss=1.0))
    (event, after), _ = event_log.tail(path, end)
    assert isinstance(event, Reported)
    assert [vars(e)["epoch"] for e, _ in event_log.tail(path, after)] == [2]
    assert (num_events(path, 0), num_events(path, end)) == (3, 2)


NO_EVENTS = """\
\0\0\0
[1]
{"kind": "lunch", "time_ms": 3}
{"kind": "end"}
{"kind": "end", "status": "FINISHED", "tags": null}
{"kind": "report", "epoch": "2", "metrics": {}}
{"kind": "reopen", "time_ms": "2"}
{"kind": "reopen", "trial": "../../x"}
{"kind": "artifact", "path": "a", "to": "../x"}
{"kind": "artifact", "path": "a", "to": "/tmp"}
{"kind": "artifact", "path": "a", "to": "%2e%2e"}
"""


@pytest.mark.parametrize("line", [*NO_EVENTS.encode().splitlines(True), b"[" * 100_000 + b"\n"])
def test_a_line_that_is_no_event_is_named(path: Path, line: bytes) -> None:
    EventLog(path).append(START)
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(line)
    with pytest.raises(SweepError, match=rf"events.jsonl is damaged: .* at byte {size} .* cut"):
        read_events(path)
    path.write_bytes(line)
    with pytest.raises(SweepError, match=r"it does not begin with the sweep's start; restore it"):
        event_log.first_event(path)
