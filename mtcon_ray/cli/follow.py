"""What a job prints, shown as a sweep of this machine would be: its lines read back as a board."""

import threading
import time
from collections.abc import Callable
from types import TracebackType

import click

from mtcon_ray.cli.drawing import Scene
from mtcon_ray.cli.events import Close, Decoding, Downloading, Event, Preparing, Start, Starting
from mtcon_ray.cli.lines import read, unstamped
from mtcon_ray.cli.live import Live
from mtcon_ray.cli.terminal import Terminal, printable
from mtcon_ray.cli.text import duration

BEFORE_THE_BOARD = (Preparing, Downloading, Decoding, Start)


class Follower:
    """Shows a job's log on a terminal, the events in it as a board; use as a context manager.

    Elsewhere the log is passed on as it comes. What is no event stands above the board, as it is;
    after a sweep's last event its board stays. `quiet` leaves the events out.
    """

    def __init__(
        self,
        terminal: Terminal,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._terminal = terminal
        self._quiet = quiet
        self._clock = clock
        self._rest = ""  # of a line whose end is yet to come
        self._above: list[str] = []
        self._waiting: tuple[str, str, float] | None = None
        self._scene = Scene("")
        # The job's clock is ahead of ours by as much as its promptest line.
        self._ahead = 0.0
        self._ended: float | None = None
        self._lock = threading.RLock()
        self._live: Live | None = None

    def __enter__(self) -> "Follower":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._rest:
            self._above.append(self._rest)
            self._rest = ""
            self._flush(end="\n" if error else "")
        with self._lock:
            self._waiting, self._scene.preparing = None, ""
        self._close()

    def wait(self, what: str, seconds: float, reason: str = "") -> None:
        """What is waited for until the job prints, for how long already, and why."""
        if self._terminal.live and not self._quiet:
            with self._lock:
                since = self._waiting[2] if self._waiting else self._clock() - seconds
                self._waiting = printable(what), printable(" ".join(reason.split())), since
            self._open()

    def write(self, text: str) -> None:
        """A piece of the log, cut anywhere."""
        text = printable(text)
        if not self._terminal.live and not self._quiet:
            click.echo(text, nl=False)
            return
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._line(line)
        self._flush()

    def _line(self, line: str) -> None:
        found = unstamped(line)
        event = read(found[1]) if found else None
        if found is None or event is None:
            self._above.append(line)
        elif not self._quiet:
            seconds, text = found
            known = self._hear(seconds, event)
            self._above += [] if known else [line]
            self._above += [text] if isinstance(event, Start) else []

    def _hear(self, seconds: float, event: Event) -> bool:
        """Whether the event is of a sweep whose beginning was seen."""
        first = isinstance(event, Starting) or (
            isinstance(event, Start) and (self._scene.board or not self._live)
        )
        if first:
            self._begin(seconds)
        elif not self._live or not (self._scene.board or isinstance(event, BEFORE_THE_BOARD)):
            return False
        with self._lock:
            self._waiting = None
            self._ahead = max(self._ahead, seconds - self._clock())
            self._ended = seconds if isinstance(event, Close) else None
            self._scene.tell(event, seconds)
        if isinstance(event, Close):
            self._close()
        return True

    def _begin(self, seconds: float) -> None:
        """A sweep's own area; that of one before it stays as it is."""
        if self._scene.board:
            self._close()
        with self._lock:
            self._scene = Scene("starting…")
            self._ahead = seconds - self._clock()
        self._open()

    def _open(self) -> None:
        self._live = self._live or Live(self._terminal, self._frame, self._lock)

    def _close(self) -> None:
        self._flush()
        if self._live:
            self._live.close()
        self._live, self._scene = None, Scene("")

    def _flush(self, end: str = "\n") -> None:
        lines, self._above = self._above, []
        if not lines:
            return
        if self._live:
            self._live.draw(above="\n".join(lines))
        elif self._terminal.live:
            self._terminal.write("\n".join(lines) + end)
        else:
            click.echo("\n".join(lines) + end, nl=False)

    def _frame(self) -> list[str]:
        if self._waiting:
            what, reason, since = self._waiting
            parts = what, duration(self._clock() - since), reason
            return [" · ".join(part for part in parts if part)]
        elapsed = self._clock() + self._ahead if self._ended is None else self._ended
        return self._scene.lines(elapsed, self._terminal)
