"""Log lines of a sweep, which are parsed again when a job is followed."""

import math
from typing import Any

import pytest

from mtcon_ray.cli.events import (
    Close,
    Decoding,
    Downloading,
    End,
    Event,
    Known,
    Preparing,
    Report,
    Start,
    Starting,
    Suggest,
    one_line,
)
from mtcon_ray.cli.lines import read, stamped, unstamped, written
from mtcon_ray.cli.text import configuration

STANDING = "3/12 done; best 0.540 (temperature=0.1); about 1:02:05 left"
AWKWARD: dict[str, dict[str, Any]] = {
    "numbers": {"method.temperature": 0.0316227766, "train.epochs": 8, "train.lr": 1e-9},
    "others": {"a.b": None, "a.c": True, "data.tasks": ["shape", "colour"]},
    "strings": {"a.text": "two words, a comma; (brackets): started: 1/2", "a.more": "x=y"},
    "line ends": {"a.text": "one\ntwo\r\n\x1b[2J three"},
    "none": {},
}
REASONS = (
    "Diverged: loss is nan",
    "OSError: [Errno 28] No space left; (log: /tmp/x (1)/error.txt)",
    "bad), val/accuracy 0.100; 1/2 done; best 0.2 (a=1)",
    "after epoch 3/4 (really)",
    'KeyError: "a\\b", val/accuracy 0.100: x=1',
    one_line("RuntimeError: NCCL\n  unhandled: (2)\n\ttrace"),
)
NUMBERS = (None, 0.74, 0.0, -1.25, math.nan, math.inf, -math.inf)
EVENTS: tuple[Event, ...] = (
    Starting(),
    Preparing("connecting to Ray"),
    *(Downloading(n, 93_000_000) for n in (0, 999, 1000, 1_500_000, 93_000_000)),
    Downloading(5_000_000_000, 1_200_000_000_000),
    Decoding(0, 10),
    Decoding(50_000, 50_000),
    Start("shoes-1", 1, 1, None, "/sweeps/shoes-1"),
    Start("a.b_c-1", 12, 300, 4, "/a folder, in (brackets): x/in /y"),
    *(
        Suggest("trial-0003", one_line(configuration(params)), epochs)
        for params in AWKWARD.values()
        for epochs in (None, 1, 24)
    ),
    *(
        Known("trial-0003", one_line(configuration(params)), status, 0, 24, value, reason)
        for params in AWKWARD.values()
        for status in ("FINISHED", "PRUNED", "FAILED", "INTERRUPTED", "WAITING")
        for value in (None, 0.74, math.nan)
        for reason in (None, *REASONS)
    ),
    *(Report("trial-0003", 4, 24, value, loss) for value in NUMBERS for loss in NUMBERS),
    *(
        End("trial-12345", status, after, value, reason, STANDING)
        for status in ("FINISHED", "PRUNED", "FAILED", "INTERRUPTED", "WAITING")
        for after in (None, (4, 24))
        for value in NUMBERS
        for reason in (None, *REASONS)
    ),
    End("run-1", "FAILED", None, None, "Diverged", "0/1 done"),
    Start("a-1", 12, 300, 4, "/folder", "val/score"),
    Start("a-1", 12, 300, 4, "/folder", "val/score", "best"),
    Start("a-1", 12, 300, None, "/folder", select="best"),
    Start("a-1", 1, 1, None, "/a, by val/score, in /folder", "val/score"),
    *(Report("trial-0003", 4, 24, -0.5, loss, "val/score") for loss in NUMBERS),
    End("trial-0003", "PRUNED", (4, 24), 0.5, "x", STANDING, "val/score"),
    Close("shoes-1", 3, 12, "trial-0003", 0.5, "a=1", "val/score"),
    Close("shoes-1", 0, 12),
    Close("shoes-1", 1, 12, "trial-0003", 0.74),
    *(
        Close("shoes-1", 3, 12, "trial-0003", value, one_line(configuration(params)))
        for value in (0.74, -1.0, math.nan)
        for params in AWKWARD.values()
    ),
)


def test_events_are_what_their_lines_say() -> None:
    """Compares by `repr`, because NaN is not equal to itself."""
    for event in EVENTS:
        line = written(event)
        assert len(line.splitlines()) == 1
        assert repr(read(line)) == repr(event), line


def test_a_line_names_the_objective() -> None:
    report = Report("trial-0003", 4, 24, 0.5, None, "val/score")
    assert written(report) == "trial-0003 epoch 4/24: val/score 0.500"


@pytest.mark.parametrize("seconds", [0, 59, 60, 3599, 3600, 3725, 86_399, 400_000])
def test_stamps_keep_their_seconds(seconds: int) -> None:
    assert unstamped(stamped(seconds, "a [ 0:01] b")) == (seconds, "a [ 0:01] b")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "starting to train",
        "trial-0003 epoch 4/24: val/accuracy good",
        "trial-0003 finished",
        "NOT ALL IS IN MLFLOW (tracking.offline is set); nothing is lost: send it with `x`",
        "1  trial-0006  temperature=1     10/10   0.667         0.519       finished",
        "winner: trial-0006 (temperature=1), val/accuracy 0.667",
        "  test  colour  6  0.983 ±0.010",
    ],
)
def test_other_lines_are_no_event(line: str) -> None:
    assert read(line) is None


@pytest.mark.parametrize("line", ["starting", "[0:1] starting", " [ 0:01] starting", "[ 0:01]"])
def test_only_lines_with_a_time_are_stamped(line: str) -> None:
    assert unstamped(line) is None
