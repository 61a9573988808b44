"""Output to the terminal: its capabilities, and text that cannot control it."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TextIO, cast

import click
from rich.console import Console, RenderableType
from rich.live import Live

from mtcon_ray.display.presentation import hanging, printable
from mtcon_ray.display.tables import UNLIMITED_COLUMNS
from mtcon_ray.errors import MtconError

FANCY = "█░·…±—"
PLAIN = str.maketrans({"█": "#", "░": ".", "·": "|", "…": "~", "±": "+-", "—": "-"})
REDRAWS_PER_SECOND = 2


@dataclass(frozen=True)
class Terminal:
    """A stream to print to. `live` is True if it can be redrawn in place."""

    stream: TextIO
    live: bool

    @classmethod
    def of(cls, stream: TextIO | None = None) -> "Terminal":
        """Returns a stream, standard output by default, as a terminal. Respects TERM."""
        stream = stream or sys.stdout
        return cls(stream, stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"))

    @property
    def encoding(self) -> str:
        """The stream's encoding. A stream without an encoding takes all characters."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines of the terminal as they are now."""
        return self.console().size

    @property
    def columns(self) -> int | None:
        """Columns of the terminal, None where output is not a terminal."""
        return self.size[0] if self.live else None

    def write(self, text: str) -> int:
        """Writes and flushes text. Ignores errors: a closed terminal must not end a sweep."""
        if FANCY.encode(self.encoding, "replace").decode(self.encoding) != FANCY:
            text = text.translate(PLAIN).encode(self.encoding, "replace").decode(self.encoding)
        with suppress(OSError):
            self.stream.write(text)
            self.stream.flush()
        return len(text)

    def flush(self) -> None:
        """Does nothing: `write` flushes."""

    def console(self) -> Console:
        """Returns a `rich` console for this stream, without interpretation of markup in data.

        Respects NO_COLOR.
        """
        return Console(
            file=cast(IO[str], self),
            force_terminal=self.live,
            force_interactive=self.live,
            force_jupyter=False,
            color_system="auto" if self.live and not os.environ.get("NO_COLOR") else None,
            width=None if self.live else UNLIMITED_COLUMNS,
            markup=False,
            highlight=False,
            emoji=False,
        )

    def live_area(self, frame: "Callable[[], RenderableType]") -> Live:
        """Returns an area of the terminal for redrawing in place, not started yet."""
        # Redirected streams would outlive the area in libraries imported meanwhile, and
        # standard error may be a file.
        return Live(
            console=self.console(),
            get_renderable=frame,
            refresh_per_second=REDRAWS_PER_SECOND,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def say(text: object, *, err: bool = False) -> None:
    """Prints a line with control characters written out.

    Raises MtconError if standard output cannot be written, BrokenPipeError if its reader has ended.
    """
    try:
        click.echo(printable(str(text)), err=err)
    except BrokenPipeError:
        raise
    except OSError as error:
        if not err:  # an error of standard error itself cannot be printed
            raise MtconError(f"cannot write to standard output: {error.strerror}") from None


def warn(text: str) -> None:
    """Prints a warning to standard error."""
    say(hanging(f"warning: {text}"), err=True)


def open_closed_streams() -> None:
    """Opens the null device for each standard stream closed by the caller.

    Otherwise the next opened file would get the stream's descriptor, and output of libraries and
    child processes would be written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            # os.open takes the lowest free descriptor, which is the closed stream's.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def drop_unwritten() -> None:
    """Discards output refused by a full or closed stream.

    Python would try again at its exit, print an error and change the exit code.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            setattr(sys, name, None)
