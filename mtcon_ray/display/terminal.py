"""Output to the terminal: its capabilities, and text that cannot control it."""

import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TextIO

import click

from mtcon_ray.display.presentation import hanging, printable


@dataclass(frozen=True)
class Terminal:
    """A stream to print to. `live` is True if its last line can be redrawn."""

    stream: TextIO
    live: bool

    @classmethod
    def of(cls, stream: TextIO | None = None) -> "Terminal":
        """Returns a stream, standard output by default, as a terminal. Respects TERM."""
        stream = stream or sys.stdout
        return cls(stream, stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"))

    @property
    def columns(self) -> int | None:
        """Columns of the terminal as they are now, None where output is not a terminal."""
        return get_terminal_size().columns if self.live else None

    def write(self, text: str) -> None:
        """Writes and flushes text, with "?" for characters that the stream's encoding lacks.

        A stream without an encoding takes all characters. Ignores errors: a closed terminal must
        not end a sweep.
        """
        encoding = getattr(self.stream, "encoding", None) or "utf-8"
        with suppress(OSError):
            self.stream.write(text.encode(encoding, "replace").decode(encoding))
            self.stream.flush()

    def flush(self) -> None:
        """Does nothing: `write` flushes."""


def say(text: object, *, err: bool = False) -> None:
    """Prints a line with control characters written out. An error of standard error is ignored."""
    try:
        click.echo(printable(str(text)), err=err)
    except OSError:
        if not err:
            raise


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
