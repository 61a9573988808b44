"""Display of a job's log: a waiting line until the job prints, then the log as it is."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import click

from mtcon_ray.cli.terminal import Terminal
from mtcon_ray.display.tables import cell
from mtcon_ray.presentation import duration_text, printable

if TYPE_CHECKING:
    from rich.console import RenderableType


class Follower(AbstractContextManager["Follower"]):
    """Passes a job's log on; a context manager.

    On a terminal it shows what it waits for until the log begins, unless `quiet`.
    """

    def __init__(self, terminal: Terminal, *, quiet: bool = False) -> None:
        self._stream = terminal.stream
        self._waiting: RenderableType = ""
        shown = terminal.live and not quiet
        self._live = terminal.live_area(lambda: self._waiting) if shown else None
        if self._live:
            self._live.transient = True

    def __exit__(self, *exception: object) -> None:
        self._close()

    def wait(self, what: str, seconds: float, reason: str = "") -> None:
        """Shows what the job waits for, for how many seconds already, and why."""
        if self._live:
            parts = what, duration_text(seconds), " ".join(reason.split())
            self._waiting = cell(" · ".join(part for part in parts if part), shortened=True)
            self._live.start(refresh=True)

    def write(self, text: str) -> None:
        """Prints a piece of the log, which may end anywhere in a line."""
        if text:
            self._close()
            click.echo(printable(text), file=self._stream, nl=False)

    def _close(self) -> None:
        if self._live:
            self._live.stop()
