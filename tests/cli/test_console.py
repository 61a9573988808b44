"""The live table on a terminal, and plain lines elsewhere."""

import io
from pathlib import Path
from types import SimpleNamespace

import pytest

from mtcon_ray.cli.board import Board
from mtcon_ray.cli.console import Console
from mtcon_ray.cli.drawing import frame
from mtcon_ray.cli.events import End, Report, Start, Suggest
from mtcon_ray.cli.live import HIDE_CURSOR, SHOW_CURSOR, LiveArea
from mtcon_ray.cli.terminal import Terminal, clip, visible
from tests.cli.screens import Clock, Tty, screen

PLAN = SimpleNamespace(
    num_trials=3, epochs=4, concurrency=2, objective="val/accuracy", select="last"
)


def watch(console: Console, clock: Clock) -> None:
    """Plays a short sweep: one trial finishes, one is stopped, one fails."""
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


def plain(encoding: str = "utf-8") -> tuple[io.TextIOWrapper, Terminal]:
    """Returns a stream that is not a terminal, with an encoding."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    return stream, Terminal.of(stream)


def text_of(stream: io.TextIOWrapper) -> str:
    """Returns the text written to such a stream."""
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(stream.encoding)


def test_plain_lines_tell_each_event_once() -> None:
    stream, terminal = plain()
    clock = Clock()
    with Console(terminal, clock=clock) as console:
        watch(console, clock)
    lines = text_of(stream).splitlines()
    assert lines[0] == "[ 0:00] starting"
    assert lines[1] == "[ 0:00] shoes-1: 3 trials of 4 epochs, 2 at a time, in /sweeps/shoes-1"
    assert "[ 0:00] trial-0001 started: temperature=0.03162" in lines
    assert "[ 0:20] trial-0000 epoch 2/4: val/accuracy 0.520, loss 2.000" in lines
    assert not any("epoch 4/4" in line for line in lines), "the last epoch has its end's line"
    finished = next(line for line in lines if "trial-0000 finished" in line)
    assert "1/3 done; best 0.540 (temperature=0.1)" in finished
    assert "[ 0:40] trial-0001 stopped early after epoch 1/4, val/accuracy 0.900; 2/3" in lines[-4]
    assert "trial-0002 failed (Diverged: loss is nan); 3/3 done" in lines[-2]
    assert lines[-1] == (
        "[ 0:40] shoes-1 ended: 3/3 done; best trial-0000, val/accuracy 0.540 (temperature=0.1)"
    )
    assert "\x1b" not in text_of(stream)


def test_plain_lines_are_throttled() -> None:
    stream, terminal = plain()
    with Console(terminal, clock=Clock()) as console:
        console.on_start("s-1", Path("/s"), PLAN)
        console.on_suggest("trial-0000", {})
        for epoch in range(1, 1000):
            console.on_report("trial-0000", epoch, 1000, {"val/accuracy": 0.5})
    assert len(text_of(stream).splitlines()) == 4


@pytest.mark.parametrize(("at_a_time", "lines"), [(1, 59), (50, 550)])
def test_a_long_training_is_not_silent(at_a_time: int, lines: int) -> None:
    """One trial prints a line a minute, many print ten; the input has ten epochs a minute."""
    stream, terminal = plain()
    clock = Clock()
    with Console(terminal, clock=clock) as console:
        many = SimpleNamespace(
            num_trials=99, epochs=4, concurrency=9, objective="val/accuracy", select="last"
        )
        console.on_start("s-1", Path("/s"), many)
        for trial in range(at_a_time):
            console.on_suggest(f"trial-{trial}", {"train.epochs": 1000})
        for epoch in range(1, 600):
            clock.now += 6
            for trial in range(at_a_time):
                console.on_report(f"trial-{trial}", epoch, 1000, {"loss": 2.0})
    told = [line for line in text_of(stream).splitlines() if " epoch " in line]
    assert len(told) == lines
    assert told[-1].endswith("/1000: loss 2.000")
    assert "trial-0 started, 1000 epochs: epochs=1000" in text_of(stream)


def test_quiet_says_only_notes() -> None:
    stream, terminal = plain()
    clock = Clock()
    with Console(terminal, quiet=True, clock=clock) as console:
        watch(console, clock)
        console.on_note("the tracking server is away; spooling")
    assert text_of(stream) == "[ 0:40] the tracking server is away; spooling\n"


def test_ascii_streams_get_ascii() -> None:
    stream, terminal = plain("ascii")
    terminal.write("0.5 ±0.1 · █░ … é\n")
    assert text_of(stream) == "0.5 +-0.1 | #. ~ ?\n"


def test_live_table_stands_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The screen has one table with notes above it, and the cursor is visible at the end."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "24")
    stream, clock = Tty(), Clock()
    with Console(Terminal.of(stream), clock=clock) as console:
        console.on_store(5, 10)
        watch(console, clock)
        console.on_note("the tracking server is away; spooling")
    shown = screen(stream.getvalue(), 100)
    assert shown[0].startswith("shoes-1: 3 trials of 4 epochs")
    assert shown[1] == "the tracking server is away; spooling"
    assert shown[2].startswith("shoes-1 · 3/3 done · best 0.540 (temperature=0.1) · 0:40")
    assert shown[3].split() == ["trial", "configuration", "epoch", "val/accuracy", "state"]
    assert [line.split()[0] for line in shown[4:7]] == ["trial-0000", "trial-0001", "trial-0002"]
    assert "████████████ 4/4" in shown[4]
    assert shown[7:] == [""]
    assert stream.getvalue().count(HIDE_CURSOR) == 1
    assert stream.getvalue().endswith(SHOW_CURSOR)


@pytest.mark.parametrize(
    ("columns", "configuration", "bars"),
    [(50, "tem", False), (80, "temperature=0.07", False), (90, "temperature=0.07", True),
     (140, "temperature=0.07336 lr=0.02536 weighting=learned", True)],
)  # fmt: skip
def test_a_narrow_board_keeps_values_and_states(
    columns: int, configuration: str, bars: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is shortened first, then the bars are omitted."""
    monkeypatch.setenv("COLUMNS", str(columns))
    board = Board(Start("first-1", 8, 12, 2, "/s"))
    for number, (state, reason) in enumerate(
        [("RUNNING", None), ("FINISHED", None), ("FAILED", "Diverged: loss is nan at step 312")]
    ):
        name, fields = f"trial-000{number}", "temperature=0.07336 lr=0.02536 weighting=learned"
        board.tell(Suggest(name, fields), 0)
        board.tell(Report(name, 12, 12, 0.31 + number / 10), 10)
        if state != "RUNNING":
            board.tell(End(name, state, (12, 12), None, reason), 10)
    head, header, *rows = frame(board, 10, Terminal(Tty(), live=True, colour=False, unicode=True))
    assert max(map(len, [head, header, *rows])) < columns
    assert "best 0.410" in head
    assert " 0:10" in head
    assert header.split()[-2:] == ["val/accuracy", "state"]
    for row, value, state in zip(
        rows, ("0.310", "0.410", "0.510"), ("running", "finished", "failed: D"), strict=True
    ):
        assert configuration in row
        assert f"12/12  {value}         {state}" in row
        assert ("█" in row) == bars


def test_cursor_comes_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Tty()

    def interrupted() -> None:
        with Console(Terminal.of(stream)) as console:
            console.on_start("s-1", Path("/s"), PLAN)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert stream.getvalue().endswith(SHOW_CURSOR)


def test_narrowed_terminal_leaves_no_old_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a resize, the lines of the last frame are counted as wrapped at the new width."""
    monkeypatch.setenv("COLUMNS", "40")
    stream = Tty()
    area = LiveArea(Terminal(stream, live=True, colour=False, unicode=True))
    monkeypatch.setenv("COLUMNS", "80")
    area.draw(["x" * 60, "second"])
    before = stream.getvalue()
    monkeypatch.setenv("COLUMNS", "40")
    area.draw(["new"])
    assert stream.getvalue()[len(before) :].startswith("\r\x1b[3A")


def test_no_colour_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert Terminal.of(Tty()).style("x", "red") == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Terminal.of(Tty()).style("x", "red") == "x"


def test_dumb_terminals_get_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal.of(Tty()).live


@pytest.mark.parametrize("columns", [1, 5, 11])
def test_clip_counts_what_is_seen(columns: int) -> None:
    """Escape sequences have no width and are all kept, so that no colour leaks."""
    line = "\x1b[31mhello\x1b[0m world"
    clipped = clip(line, columns)
    assert visible(clipped) == columns
    assert clipped.count("\x1b") == 2


def test_terminal_that_has_gone_ends_nothing() -> None:
    class Gone(Tty):
        def write(self, text: str) -> int:
            raise OSError(5, "Input/output error")

    Terminal(Gone(), live=True, colour=True, unicode=True).write("x")
