"""The lines of a sweep's events, the last line of a terminal, and full or closed streams."""

import errno
import io
import re
import sys
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import click
import pytest

from mtcon_ray.display.console import Console, Terminal, drop_unwritten, say
from mtcon_ray.sweep.record import Trial
from tests.processes import REPOSITORY, run, run_python
from tests.recorded import plan_with

PLAN = plan_with(num_trials=3, epochs=4, least={"epochs": 2}, concurrency=2)
FULL = OSError(errno.ENOSPC, "No space left on device")


def watch(console: Console, clock: SimpleNamespace) -> None:
    """A short sweep: one finishes, one is stopped, one fails."""
    console.on_start("shoes-1", Path("/sweeps/shoes-1"), PLAN)
    console.on_suggest("trial-0000", {"method.temperature": 0.1})
    console.on_suggest("trial-0001", {"method.temperature": 0.0316227})
    for epoch in range(1, 5):
        clock.now += 10
        console.on_report("trial-0000", epoch, 4, {"val/accuracy": 0.5 + epoch / 100, "loss": 2.0})
    console.on_report("trial-0001", 1, 4, {"val/accuracy": 0.9})
    console.on_end("trial-0000", "FINISHED", 0.54, None)
    console.on_end("trial-0001", "PRUNED", 0.9, None)
    console.on_suggest("trial-0002", {"method.temperature": 1.0})
    console.on_end("trial-0002", "FAILED", None, "Diverged: loss is nan")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Returns the clock of all displays, whose seconds pass only when told."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("mtcon_ray.display.console.monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def tty(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Returns a terminal of 60 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    tty = io.StringIO()
    monkeypatch.setattr(tty, "isatty", lambda: True)
    return tty


def test_a_notebook_redraws_a_bar_of_the_epochs(clock: SimpleNamespace) -> None:
    class Output(io.StringIO):
        """The standard output of a notebook, which returns to the start of a line at "\\r"."""

    Output.__module__ = "ipykernel.iostream"
    stream = Output()
    with Console(Terminal(stream)) as console:
        watch(console, clock)
        console.on_note("of two\nlines")
        console.on_abort("stopped")
    parts = [line.split("\r") for line in stream.getvalue().split("\n")]
    shown = [reduce(lambda old, new: new + old[len(new) :], line).rstrip() for line in parts]
    assert {"[ 0:40] of two", "  lines", "error: stopped"} <= {*shown}
    assert "[ 0:20] trial-0000 epoch 2/4, val/accuracy 0.520, loss 2.000" in shown
    assert "░" not in "".join(shown[:-2]), "each line replaces the bar"
    assert shown[-2].startswith("█" * 20 + " 3/3 done; best 0.540")
    assert f"\r███{17 * '░'} 0/3 done" in stream.getvalue(), "2 of 12 epochs"


def test_plain_lines_tell_each_event_once(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    with Console(Terminal(stream)) as console:
        watch(console, clock)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "[ 0:00] starting"
    assert lines[1] == "[ 0:00] shoes-1: 3 trials of 2 to 4 epochs, 2 at a time, in /sweeps/shoes-1"
    assert "[ 0:00] trial-0001 started: temperature=0.03162" in lines
    assert "[ 0:20] trial-0000 epoch 2/4, val/accuracy 0.520, loss 2.000" in lines
    assert "trial-0000 epoch 4/4" not in stream.getvalue(), "the last epoch has its end's line"
    finished = next(line for line in lines if "trial-0000 finished" in line)
    assert "1/3 done; best 0.540 (temperature=0.1)" in finished
    assert "[ 0:40] trial-0001 stopped early after epoch 1/4, val/accuracy 0.900; 2/3" in lines[-4]
    assert "trial-0002 failed (Diverged: loss is nan); 3/3 done" in lines[-2]
    assert lines[-1] == ("[ 0:40] shoes-1 ended: 3/3 done; best 0.540 (temperature=0.1)")
    assert "\x1b" not in stream.getvalue()


def test_plain_lines_of_preparations_and_of_a_resumed_sweep(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    plan = PLAN.model_copy(update={"objective": "val/score", "select": "best"})
    with Console(Terminal(stream)) as console:
        console.on_phase("connecting to Ray")
        for done in range(0, 93_000_001, 3_000_000):
            clock.now += 0.5
            console.on_download(done, 93_000_000)
        console.on_decode(10, 10)
        clock.now = 3725
        console.on_start("s-1", Path("/s"), plan)
        params = {"method.temperature": 0.3, "data.tasks": ["a b", "c\n\x1b[2J"]}
        finished = Trial("trial-0000", 0, params, 0, 4, last_epoch=4, values={4: 0.6})
        console.on_known(finished, "FINISHED")
        console.on_known(Trial("trial-0001", 1, {}, 0, 4, last_epoch=2), "WAITING")
        console.on_suggest("trial-0002", {"train.epochs": 8})
        clock.now += 60
        console.on_report("trial-0002", 7, 8, {"loss": 2.0})
        console.on_report("trial-0002", 8, 8, {"val/score": 0.5, "loss": 2.0})
        console.on_end("trial-0002", "INTERRUPTED", None, "one\ntwo")
    end = r'1/3 done; best 0.600 (temperature=0.3 tasks=["a b", "c\n\u001b[2J"])'
    assert stream.getvalue().splitlines() == [
        "[ 0:00] starting",
        "[ 0:00] preparing: connecting to Ray",
        "[ 0:05] downloading data: 27.0 MB of 93.0 MB",
        "[ 0:10] downloading data: 57.0 MB of 93.0 MB",
        "[ 0:15] downloading data: 87.0 MB of 93.0 MB",
        "[ 0:16] downloading data: 93.0 MB of 93.0 MB",
        "[ 0:16] decoding images: 10/10",
        "[1:02:05] s-1: 3 trials of 2 to 4 epochs, 2 at a time, in /s",
        "[1:02:05] trial-0002 started: epochs=8",
        "[1:03:05] trial-0002 epoch 7/8, loss 2.000",
        f"[1:03:05] trial-0002 interrupted after epoch 8/8 (one / two), val/score 0.500; {end}",
        f"[1:03:05] s-1 ended: {end}",
    ]


def test_a_long_training_is_not_silent(clock: SimpleNamespace) -> None:
    """A line a minute of all trials; here are ten epochs a minute of each, and no probe."""
    stream = io.StringIO()
    with Console(Terminal(stream)) as console:
        console.on_start("s-1", Path("/s"), PLAN.model_copy(update={"num_trials": 99}))
        for trial in range(9):
            console.on_suggest(f"trial-{trial}", {"train.epochs": 1000})
        for epoch in range(1, 600):
            clock.now += 6
            for trial in range(9):
                console.on_report(f"trial-{trial}", epoch, 1000, {"loss": 2.0})
    told = [line for line in stream.getvalue().splitlines() if " epoch " in line]
    assert len(told) == 59
    assert told[-1].endswith("/1000, loss 2.000")
    assert "trial-0 started: epochs=1000" in stream.getvalue()


def test_quiet_says_only_notes(clock: SimpleNamespace) -> None:
    stream = io.StringIO()
    with Console(Terminal(stream), quiet=True) as console:
        watch(console, clock)
        console.on_note("the tracking server is away; events are kept")
    assert stream.getvalue() == "[ 0:40] the tracking server is away; events are kept\n"


def test_an_error_that_ends_the_process_stands_alone(tty: io.StringIO) -> None:
    stream = io.StringIO()
    Console(Terminal(stream), quiet=True).on_abort("Ray has ended")
    assert stream.getvalue() == "error: Ray has ended\n"
    with Console(Terminal(tty)) as console:
        console.on_abort("Ray has ended")
        assert tty.getvalue().endswith("error: Ray has ended\n"), "below the display"


def test_characters_that_a_stream_lacks_are_replaced() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Terminal(stream).write("0.5 ±0.1\n")
    stream.seek(0)
    assert stream.read() == "0.5 ?0.1\n"
    code = "from mtcon_ray.display import console as c; c.open_closed_streams(); c.say('0.5 —')"
    assert run_python("-c", code, PYTHONIOENCODING="latin-1").stdout == "0.5 ?\n"


def test_the_last_line_is_the_standing_and_leaves(clock: SimpleNamespace, tty: io.StringIO) -> None:
    """The same lines as in a log stand above it. It is never wider than the terminal."""
    log = io.StringIO()
    for shown in (tty, log):
        clock.now = 0
        with Console(Terminal(shown)) as console:
            console.on_decode(5, 10)
            watch(console, clock)
            console.on_note("the tracking server is away; events are kept")
    drawn = re.split(r"[\r\n]|\x1b\[2K", tty.getvalue())
    drawn = [re.sub(r"\x1b\[\S*?[A-Za-z]", "", line) for line in drawn]
    assert [line for line in drawn if line.startswith("[")] == log.getvalue().splitlines()
    last = [line for line in drawn if line.startswith("shoes-1 ")]
    assert last[-1] == "shoes-1 · 0:40 · 3/3 done; best 0.540 (temperature=0.1)"
    assert max(map(len, last)) <= 60
    assert tty.getvalue().endswith("\x1b[2K"), "the last line is removed"
    assert "\x1b[?25h" in tty.getvalue(), "the cursor is shown again"


def test_terminal_that_has_gone_ends_nothing(
    clock: SimpleNamespace, tty: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tty, "write", Mock(side_effect=BrokenPipeError(32, "Broken pipe")))
    with Console(Terminal(tty)) as console:
        watch(console, clock)
    Terminal(tty).write("x")


def test_only_a_message_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Mock(side_effect=FULL)
    monkeypatch.setattr(click, "echo", echo)
    with pytest.raises(OSError, match="No space left"):
        say("x")
    say("x", err=True)
    assert echo.call_count == 2


def test_what_a_full_stream_refuses_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python flushes again at its exit, and would change the exit code."""
    monkeypatch.setattr(sys, "stdout", Mock(flush=Mock(side_effect=FULL)))
    drop_unwritten()
    assert sys.stdout is None
    drop_unwritten()


def test_no_file_takes_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """A child process would print into it."""
    code = (
        "import os, sys\n"
        "from mtcon_ray.display.console import open_closed_streams\n"
        "open_closed_streams()\n"
        "with open(sys.argv[1], 'w') as file:\n"
        "    os.system('echo noise; echo noise >&2')\n"
        "    print('noise')\n"
        "    file.write(str(file.fileno() > 2))\n"
    )
    words = ("sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code)
    run([*words, str(tmp_path / "file")], cwd=REPOSITORY)
    assert (tmp_path / "file").read_text() == "True"
