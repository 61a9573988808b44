"""Display of a job's log: a waiting line until the job prints, then the log as it is."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from mtcon_ray.cli.terminal import Terminal
from mtcon_ray.presentation import duration_text, printable

if TYPE_CHECKING:
    from rich.text import Text


class Follower(AbstractContextManager["Follower"]):
    """Passes a job's log on; a context manager.

    On a terminal it shows what it waits for until the log begins, unless `quiet`.
    """

    def __init__(
        self,
        terminal: Terminal,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = terminal.stream
        self._clock = clock
        self._what, self._reason, self._since = "", "", clock()
        shown = terminal.live and not quiet
        self._live = terminal.live_area(self._waiting_line) if shown else None
        if self._live:
            self._live.transient = True

    def __exit__(self, *exception: object) -> None:
        self._close()

    def wait(self, what: str, seconds: float, reason: str = "") -> None:
        """Shows what the job waits for, for how many seconds already, and why."""
        if self._live:
            self._what, self._reason = what, " ".join(reason.split())
            if not self._live.is_started:
                self._since = self._clock() - seconds
                self._live.start(refresh=True)

    def write(self, text: str) -> None:
        """Prints a piece of the log, which may end anywhere in a line."""
        if text:
            self._close()
            click.echo(printable(text), file=self._stream, nl=False)

    def _close(self) -> None:
        if self._live:
            self._live.stop()

    def _waiting_line(self) -> "Text":
        from mtcon_ray.cli.tables import cell

        parts = self._what, duration_text(self._clock() - self._since), self._reason
        return cell(" · ".join(part for part in parts if part), shortened=True)
