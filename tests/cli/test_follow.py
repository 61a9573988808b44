"""A job's log on a terminal and elsewhere: as it is, after a line that says what is waited for."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from mtcon_ray.cli.follow import Follower
from mtcon_ray.cli.main import program
from mtcon_ray.cli.terminal import Terminal
from tests.cli.screens import HIDE_CURSOR, SHOW_CURSOR, Tty, screen
from tests.waiting import wait_until

LOG = (
    "[ 0:00] starting\n[ 0:02] trial-0003 started: temperature=0.1\n\tno event [red]äß…[/red]\n\n"
    "error: no end of a line"
)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Tty:
    """Standard output, as a terminal of 100 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("LINES", "24")
    return Tty()


@pytest.mark.parametrize("length", [1, 7, 1000])
def test_a_log_is_passed_on(terminal: Tty, length: int) -> None:
    """However its pieces are cut, and after the waiting line is gone."""
    with Follower(Terminal.of(terminal)) as follower:
        follower.wait("job s-1-1 is pending", 0)
        for place in range(0, len(LOG), length):
            follower.write(LOG[place : place + length])
    waiting, log = terminal.getvalue().split(SHOW_CURSOR)
    assert waiting.count(HIDE_CURSOR) == 1
    assert log.removeprefix("\r\x1b[1A\x1b[2K") == LOG
    assert screen(terminal.getvalue(), 100) == [line.expandtabs() for line in LOG.split("\n")]


def test_waiting_is_shown_until_the_job_prints(terminal: Tty) -> None:
    def shown() -> list[str]:
        return screen(terminal.getvalue(), 100)

    with Follower(Terminal.of(terminal)) as follower:
        follower.wait("job s-1-1 is pending", 12.0, "Job has not\nstarted \x1b[2Jyet.")
        waiting = "job s-1-1 is pending · 0:12 · Job has not started \\x1b[2Jyet."
        assert shown() == [waiting]
        follower.wait("job s-1-1 is pending", 72.0, "日本語" * 30)
        follower.write("")
        waiting = f"job s-1-1 is pending · 1:12 · {'日本語' * 30}"
        wait_until(lambda: shown()[0][:60] == waiting[:60], "redrawing")
        assert len(shown()) == 1, "a long reason is shortened"
        follower.write("word\n")
        assert shown() == ["word", ""]
    assert shown() == ["word", ""]


def test_an_interrupted_following_gives_the_cursor_back(terminal: Tty) -> None:
    def interrupted() -> None:
        with Follower(Terminal.of(terminal)) as follower:
            follower.wait("job s-1-1 is pending", 0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert terminal.getvalue().count(SHOW_CURSOR) == 1
    assert screen(terminal.getvalue(), 100) == [""]


def test_a_log_controls_no_terminal(terminal: Tty) -> None:
    with Follower(Terminal.of(terminal)) as follower:
        follower.write("a\x1b[2J\x9b\n[ 0:00] s-1: 1 trial of 1 epochs, in /\x1b[2J\n\x07")
    assert not {"\x1b", "\x07", "\x9b"} & set(terminal.getvalue())
    assert "in /\\x1b[2J" in terminal.getvalue()


@pytest.mark.parametrize("quiet", [True, False])
def test_without_a_terminal_or_quietly_nothing_is_added(
    quiet: bool, terminal: Tty, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not quiet:
        monkeypatch.setenv("TERM", "dumb")
    with Follower(Terminal.of(terminal), quiet=quiet) as follower:
        follower.wait("job s-1-1 is pending", 0)
        follower.write(LOG)
    assert terminal.getvalue() == LOG


@pytest.mark.parametrize(("options", "quiet"), [(["-q"], True), (["-q", "--no-follow"], False)])
def test_a_job_that_is_followed_quietly_is_told_to_print_less(
    options: list[str], quiet: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    class Cluster:
        def __init__(self, address: str) -> None:
            self.address = address

        def submit(self, stem: str, command: list[str], **_: Any) -> SimpleNamespace:
            commands.append(command)
            return SimpleNamespace(id="small-1-1")

        def follow(self, job_id: str, write: Callable[[str], None], wait: Any) -> int:
            write("[ 0:00] starting\n")
            return 3

    monkeypatch.setattr("mtcon_ray.cluster.jobs.Jobs", Cluster)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").touch()
    result = CliRunner().invoke(program, ["submit", "script.py", *options])
    assert commands == [["python", "-u", "script.py", *["-q"] * quiet]]
    assert result.output == "small-1-1\n" + "[ 0:00] starting\n" * quiet
    assert result.exit_code == (3 if quiet else 0)
