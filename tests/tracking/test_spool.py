"""The event log after kills, with several writers, and with NaN and infinite metrics."""

import json
import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mtcon_ray.errors import SweepError
from mtcon_ray.tracking.spool import Spool, num_events, tail


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "spool" / "trial-0000.jsonl")


def test_an_epoch_behind_an_end_is_refused_until_the_run_goes_on(tmp_path: Path) -> None:
    """Workers of a stopped trial may train on for a moment."""
    spool, worker = Spool(tmp_path / "a.jsonl"), Spool(tmp_path / "a.jsonl")
    spool.append("start", params={}, tags={})
    assert worker.append_report(1, {"loss": 1.0})
    spool.append("end", status="KILLED", tags={})
    assert not worker.append_report(2, {"loss": 1.0})
    spool.append("reopen")
    assert worker.append_report(2, {"loss": 1.0})


def test_events_are_numbered_strict_json(spool: Spool) -> None:
    spool.append("start", params={"method.temperature": 0.1}, tags={"mtcon.seed": "0"})
    spool.append_report(1, {"loss": 2.5})
    spool.append("artifact", path="/a/model.pt", to="checkpoints")
    spool.append("end", status="FINISHED", tags={})
    events = [json.loads(line) for line in spool.path.read_text().splitlines()]
    assert [e["seq"] for e in events] == [0, 1, 2, 3]
    assert [e["kind"] for e in events] == ["start", "report", "artifact", "end"]
    assert events[0]["params"] == {"method.temperature": 0.1}
    assert events[1]["epoch"] == 1
    assert events[1]["time_ms"] > 1_600_000_000_000
    assert events == spool.events()


def test_constructing_and_reading_touch_nothing(spool: Spool) -> None:
    assert spool.events() == []
    assert spool.last_epoch == 0
    assert not spool.path.parent.exists()


def test_an_epoch_is_reported_once(spool: Spool) -> None:
    """A resumed trial that repeats epochs after its checkpoint keeps the first report of each."""
    spool.append("start", params={}, tags={})
    assert spool.append_report(1, {"loss": 3.0})
    assert spool.append_report(2, {"loss": 2.0})
    again = Spool(spool.path)
    assert again.last_epoch == 2
    assert not again.append_report(1, {"loss": 9.0})
    assert not again.append_report(2, {"loss": 9.0})
    assert again.append_report(3, {"loss": 1.0})
    assert [e["metrics"] for e in again.events()[1:]] == [{"loss": x} for x in (3.0, 2.0, 1.0)]


def test_start_is_written_once(spool: Spool) -> None:
    assert spool.append("start", params={"a": 1}, tags={})
    assert not Spool(spool.path).append("start", params={"a": 2}, tags={})
    assert [e["params"] for e in spool.events()] == [{"a": 1}]


def test_two_writers_one_after_the_other(spool: Spool) -> None:
    """The driver's object was created before the trial wrote; its events continue the numbering."""
    driver = Spool(spool.path)
    driver.append("start", params={}, tags={})
    spool.append_report(1, {"loss": 1.0})
    driver.append("end", status="KILLED", tags={"mtcon.pruned": "true"})
    spool.append("reopen")
    assert [e["seq"] for e in driver.events()] == [0, 1, 2, 3]
    assert not driver.append_report(1, {"loss": 1.0})


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_torn_last_line_is_dropped_and_cut_off(spool: Spool, kept: int) -> None:
    """A kill -9 during a write leaves any part of the last line, even all except the newline."""
    spool.append("start", params={}, tags={})
    spool.append_report(1, {"loss": 1.0})
    whole = spool.path.read_bytes()
    first, second, _ = whole.split(b"\n")
    spool.path.write_bytes(first + b"\n" + (second[:kept] if kept != -1 else second))
    after = Spool(spool.path)
    assert len(after.events()) == 1
    assert after.append_report(1, {"loss": 2.0})
    assert [e["seq"] for e in after.events()] == [0, 1]
    assert after.events()[1]["metrics"] == {"loss": 2.0}


def test_not_finite_metrics_survive_as_strict_json(spool: Spool) -> None:
    spool.append_report(1, {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 1.0})
    line = json.loads(spool.path.read_text(), parse_constant=pytest.fail)
    assert line["metrics"] == {"a": "nan", "b": "inf", "c": "-inf", "d": 1.0}
    metrics = spool.events()[0]["metrics"]
    assert math.isnan(metrics["a"])
    assert (metrics["b"], metrics["c"], metrics["d"]) == (math.inf, -math.inf, 1.0)


def test_tail_gives_offsets_to_go_on_from(spool: Spool) -> None:
    spool.append("start", params={"text": "Schuhe\n\u2028 größe"}, tags={})
    [(_, end)] = tail(spool.path)
    assert end == spool.path.stat().st_size
    spool.append_report(1, {"loss": 1.0})
    [(event, _)] = tail(spool.path, end)
    assert event["epoch"] == 1
    assert (num_events(spool.path, 0), num_events(spool.path, end)) == (2, 1)


def test_a_line_that_is_no_event_is_named(spool: Spool) -> None:
    spool.append("start", params={}, tags={})
    size = spool.path.stat().st_size
    with spool.path.open("ab") as file:
        file.write(b"\0\0\0\n")
    with pytest.raises(SweepError, match=rf"trial-0000.jsonl must hold .* at byte {size}"):
        Spool.read(spool.path)


def test_a_value_that_is_not_json_is_our_bug_and_writes_nothing(spool: Spool) -> None:
    with pytest.raises(TypeError):
        spool.append("start", params={"path": Path("/a")}, tags={})
    assert spool.events() == []


@settings(deadline=None, derandomize=True, max_examples=30)
@given(cut=st.integers(0, 2000), epochs=st.integers(1, 6))
def test_cut_anywhere_and_repeated_it_is_as_if_never_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int, epochs: int
) -> None:
    """A run that is killed at any byte and repeats all its events ends with each event once."""
    path = tmp_path_factory.mktemp("spool") / "trial-0000.jsonl"
    for _ in range(2):
        spool = Spool(path)
        spool.append("start", params={}, tags={})
        for epoch in range(1, epochs + 1):
            spool.append_report(epoch, {"loss": float(epoch)})
        path.write_bytes(path.read_bytes()[:cut]) if _ == 0 else None
    events = Spool.read(path)
    assert [e["seq"] for e in events] == list(range(epochs + 1))
    assert [e["epoch"] for e in events[1:]] == list(range(1, epochs + 1))
