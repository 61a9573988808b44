"""A job's log on a terminal: the progress table is the one of a local sweep."""

import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from mtcon_ray.cli.console import Console
from mtcon_ray.cli.follow import Follower
from mtcon_ray.cli.live import HIDE_CURSOR, SHOW_CURSOR
from mtcon_ray.cli.terminal import Terminal
from tests.cli.screens import Clock, Tty, screen

PLAN = SimpleNamespace(
    num_trials=6, epochs=8, concurrency=2, objective="val/accuracy", select="last"
)
END = "\n#  trial\n1  trial-0001\n\nwinner: trial-0001\n"
# Lengths of the pieces: a log may be split at any character.
PIECES = (1, 7, 200, 100_000)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "24")


def sweep(terminal: Terminal, name: str = "shoes-1") -> None:
    """Plays a sweep with every event of a trial.

    Two trials display equal values; the later one leads.
    """
    clock = Clock()
    with Console(terminal, clock=clock) as console:
        console.on_phase("reading labels")
        console.on_store(10, 10)
        clock.now += 5
        console.on_start(name, Path("/sweeps") / name, PLAN)
        earlier = {"method.temperature": 0.3}  # from an earlier run of the sweep
        console.on_known("trial-0009", earlier, "FINISHED", 8, 8, 0.3, None)
        console.on_known("trial-0010", earlier, "FAILED", 2, 8, None, 'Error: ("x"): lr=1')
        console.on_known("trial-0004", {}, "INTERRUPTED", 5, 8, 0.2, None)
        for number, value in enumerate((0.7121, 0.7124)):
            trial = f"trial-{number:04d}"
            console.on_suggest(trial, {"method.temperature": 0.1 + number})
            for epoch in range(1, 9):
                clock.now += 10
                probe = {"val/accuracy": value - 0.01 * (8 - epoch)} if epoch % 2 == 0 else {}
                console.on_report(trial, epoch, 8, {"loss": 2.0, **probe})
            console.on_end(trial, "FINISHED", value, None)
        console.on_suggest("trial-0002", {"train.epochs": 4, "data.tasks": ["a b", "c,d"]})
        console.on_suggest("trial-0003", {"method.temperature": 0.5})
        console.on_report("trial-0002", 3, 4, {"loss": 2.0})
        console.on_end("trial-0002", "PRUNED", None, None)
        console.on_end("trial-0003", "FAILED", None, "Error (one); 1/2 done:\n  more, val/accuracy")
        console.on_suggest("trial-0004", {"method.temperature": 0.9})
        clock.now += 3700
        console.on_report("trial-0004", 6, 8, {"loss": 2.0})
    terminal.write(END)


def log_of(*names: str) -> str:
    """Returns the plain output of these sweeps."""
    stream = io.StringIO()
    for name in names:
        sweep(Terminal(stream, live=False, colour=False, unicode=True), name)
    return stream.getvalue()


def pieces(text: str, length: int) -> Iterator[str]:
    for place in range(0, len(text), length):
        yield text[place : place + length]


def followed(text: str, length: int = 100_000, *, quiet: bool = False) -> str:
    stream = Tty()
    with Follower(Terminal.of(stream), quiet=quiet, clock=Clock()) as follower:
        for piece in pieces(text, length):
            follower.write(piece)
    return stream.getvalue()


@pytest.mark.parametrize("length", PIECES)
def test_a_followed_sweep_ends_as_a_local_one_does(length: int) -> None:
    stream = Tty()
    sweep(Terminal.of(stream))
    written = followed(log_of("shoes-1"), length)
    shown = screen(written, 100)
    assert shown == screen(stream.getvalue(), 100)
    assert shown[0] == "shoes-1: 6 trials of 8 epochs, 2 at a time, in /sweeps/shoes-1"
    assert shown[1].startswith("shoes-1 · 6/6 done · best 0.712 (temperature=1.1) · 1:04:25")
    assert [line.split()[0] for line in shown[3:6]] == ["trial-0004", "trial-0001", "trial-0000"]
    assert (written.count(HIDE_CURSOR), written.count(SHOW_CURSOR)) == (1, 1)


def test_the_objective_of_several_kinds_is_named_on_every_screen() -> None:
    """This holds for log lines, for the table, and for the table made from the log."""
    plan = SimpleNamespace(**{**vars(PLAN), "num_trials": 2, "objective": "val/score"})
    tty, log = Tty(), io.StringIO()
    for terminal in (Terminal.of(tty), Terminal(log, live=False, colour=False, unicode=True)):
        clock = Clock()
        with Console(terminal, clock=clock) as console:
            console.on_start("shoes-1", Path("/s"), plan)
            console.on_end("trial-0000", "FINISHED", 0.3, None)
            console.on_suggest("trial-0001", {})
            clock.now += 10
            console.on_report("trial-0001", 1, 2, {"val/score": 0.4, "loss": 2.0})
            console.on_end("trial-0001", "PRUNED", None, None)
    text = log.getvalue()
    assert "trial-0001 epoch 1/2: val/score 0.400, loss 2.000" in text
    assert "trial-0000 finished, val/score 0.300" in text
    assert "best trial-0000, val/score 0.300" in text
    assert "val/accuracy" not in text
    for shown in (tty.getvalue(), followed(text)):
        lines = screen(shown, 100)
        assert ["trial", "configuration", "epoch", "val/score", "state"] in map(str.split, lines)
        assert "val/accuracy" not in shown


@pytest.mark.parametrize("closed", [True, False])
def test_one_sweep_after_the_other_has_its_own_board(closed: bool) -> None:
    """The first sweep may lack its closing line."""
    text = log_of("one-1", "two-1")
    text = text if closed else "\n".join(line for line in text.split("\n") if "ended" not in line)
    shown = screen(followed(text, 50), 100)
    heads = [line.split()[0] for line in shown if " · 6/6 done" in line]
    assert heads == ["one-1", "two-1"]
    assert shown.count("winner: trial-0001") == 2


def test_times_are_the_sweeps_own() -> None:
    """A log that is read later shows its own times:

    2 epochs in 20 s. Then time runs by the local clock, and never backwards.
    """
    stream, clock = Tty(), Clock()
    clock.now = 5000.0

    def headline() -> str:
        return next(line for line in screen(stream.getvalue(), 100) if line.startswith("s-1 · "))

    with Follower(Terminal.of(stream), clock=clock) as follower:
        follower.write(
            "[ 0:00] starting\n[ 0:10] s-1: 1 trial of 4 epochs, in /s\n[ 0:10] a started: lr=1\n"
            "[ 0:20] a epoch 1/4: loss 2.000\n[ 0:30] a epoch 2/4: loss 2.000\nword\n"
        )
        assert headline().endswith(" · 0:30, about 0:20 left")
        clock.now += 15
        follower.write("word\n")
        assert headline().endswith(" · 0:45, about 0:20 left")
        follower.write("[ 0:40] a epoch 3/4: loss 2.000\nword\n")
        assert headline().endswith(" · 0:45, about 0:10 left")
        clock.now += 30
        follower.write("[ 0:55] s-1 ended: 0/1 done\n")
    assert headline().endswith(" · 0:55, about 0:10 left")


@pytest.mark.parametrize("length", PIECES)
def test_every_other_line_stands_above_in_its_order(length: int) -> None:
    words = ["before", "", "", "\ttab", "Traceback (most recent call last):", "[ 0:01] news", "äß…"]
    after = ["", "", "[ 0:03] trial-0001 started: late", "no end of a line"]
    text = "\n".join(
        [*words, "[ 0:01] starting", *words, "[ 0:02] s-1: 1 trial of 4 epochs, in /s", *words,
         "[ 0:02] a started: lr=1", *words, "[ 0:03] s-1 ended: 0/1 done", *after]
    )  # fmt: skip
    shown = screen(followed(text, length), 100)
    tabbed = [line.expandtabs() for line in words]
    board = shown.index("s-1 · 0/1 done · 0:03")
    start = "s-1: 1 trial of 4 epochs, in /s"
    assert shown[:board] == [*tabbed * 2, start, *tabbed * 2]
    assert shown[board + 3 :] == after


def test_events_without_a_beginning_are_lines() -> None:
    text = "[ 0:03] a started: late\n[ 0:04] s-1 ended: 1/1 done\n[ 0:05] decoded 1/2 images\n"
    assert followed(text) == text


def test_a_job_that_dies_leaves_its_board_and_the_cursor() -> None:
    text = log_of("shoes-1").partition("[1:04:25]")[0] + "error: killed"
    written = followed(text)
    shown = screen(written, 100)
    assert shown[1] == "error: killed"
    assert shown[2].startswith("shoes-1 · ")
    assert any(line.startswith("trial-0004") and "running" in line for line in shown)
    assert written.endswith(SHOW_CURSOR)


def test_an_interrupted_following_gives_the_cursor_back() -> None:
    stream = Tty()

    def interrupted() -> None:
        with Follower(Terminal.of(stream)) as follower:
            follower.wait("job s-1-1 is pending", 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().endswith(SHOW_CURSOR)
    assert screen(stream.getvalue(), 100) == [""]


def test_waiting_is_told_until_the_sweep_begins() -> None:
    stream, clock = Tty(), Clock()
    with Follower(Terminal.of(stream), clock=clock) as follower:
        follower.wait("job s-1-1 is pending", 12.0, "Job has not\nstarted \x1b[2Jyet.")
        clock.now += 60
        follower.wait("job s-1-1 is pending", 13.0, "Job has not\nstarted \x1b[2Jyet.")
        follower.write("word\n")
        waiting = "job s-1-1 is pending · 1:12 · Job has not started \\x1b[2Jyet."
        assert screen(stream.getvalue(), 100) == ["word", waiting, ""]
        follower.write("[ 0:01] starting\nword\n")
        assert screen(stream.getvalue(), 100) == ["word", "word", "starting…", ""]
        follower.write("[ 0:02] preparing: connecting to Ray\nword\n")
        assert screen(stream.getvalue(), 100) == [*["word"] * 3, "connecting to Ray…", ""]
    assert screen(stream.getvalue(), 100) == [*["word"] * 3, ""]


def test_the_cluster_commands_no_terminal() -> None:
    text = "a\x1b[2J\x9b\n[ 0:00] starting\n[ 0:00] s-1: 1 trial of 1 epochs, in /\x1b[2J\n\x07"
    written = followed(text)
    assert "\x1b[2J" not in written
    assert not {"\x07", "\x9b"} & set(written)
    assert "in /\\x1b[2J" in written


def test_without_a_terminal_the_log_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    text = log_of("shoes-1") + "no end\x1b"
    with Follower(Terminal.of()) as follower:
        follower.wait("job s-1-1 is pending", 0)
        for piece in pieces(text, 7):
            follower.write(piece)
    assert capsys.readouterr().out == text.replace("\x1b", "\\x1b")


@pytest.mark.parametrize("live", [True, False])
def test_quiet_leaves_the_events_out(live: bool, capsys: pytest.CaptureFixture[str]) -> None:
    text = "word\n" + log_of("shoes-1").replace(END, f"[ 0:09] news\n{END}")
    written = followed(text, 7, quiet=True) if live else ""
    if not live:
        with Follower(Terminal.of(), quiet=True) as follower:
            follower.write(text)
        written = capsys.readouterr().out
    assert written == f"word\n[ 0:09] news\n{END}"
