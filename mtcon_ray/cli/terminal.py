"""What the place that we print to can show: size, colour, characters, redrawing."""

import os
import re
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import TextIO

import click

# What commands a terminal, reorders text or is no character: never from a file of the user's.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
FANCY = "█░·…±─│"
PLAIN = {"█": "#", "░": ".", "·": "|", "…": "~", "±": "+-", "─": "-", "│": "|"}


@dataclass(frozen=True)
class Terminal:
    """A stream to print to."""

    stream: TextIO
    live: bool
    colour: bool
    unicode: bool

    @classmethod
    def of(cls, stream: TextIO | None = None) -> "Terminal":
        """What a stream, by default standard output, can do; NO_COLOR and TERM are heeded."""
        stream = stream or sys.stdout
        live = stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
        try:
            FANCY.encode(getattr(stream, "encoding", None) or "ascii")
            unicode = True
        except (UnicodeEncodeError, LookupError):
            unicode = False
        return cls(stream, live, live and not os.environ.get("NO_COLOR"), unicode)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines as they are now."""
        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError, AttributeError):
            size = shutil.get_terminal_size()
        return max(20, size.columns or 80), max(5, size.lines or 24)

    def style(self, text: str, *names: str) -> str:
        """The text in colours and weights, where they can be shown."""
        if not self.colour or not names:
            return text
        return f"\x1b[{';'.join(str(STYLES[n]) for n in names)}m{text}\x1b[0m"

    def encode(self, text: str) -> str:
        """The text in characters that the stream has."""
        if self.unicode:
            return text
        text = "".join(PLAIN.get(c, c) for c in text)
        encoding = getattr(self.stream, "encoding", None) or "ascii"
        return text.encode(encoding, "replace").decode(encoding)

    def write(self, text: str) -> None:
        """Write and flush in one piece; a terminal that has gone away ends no sweep."""
        with suppress(OSError):
            self.stream.write(self.encode(text))
            self.stream.flush()


def printable(text: str) -> str:
    """The text with control characters written out; line ends and tabs stay.

    >>> printable("name\x1b[2J")
    'name\\\\x1b[2J'
    """
    return UNPRINTABLE.sub(lambda m: m[0].encode("unicode_escape").decode(), text)


def say(text: object, *, err: bool = False) -> None:
    """Print a line, as `click.echo` does, in which names from files are harmless."""
    click.echo(printable(str(text)), err=err)


def visible(text: str) -> int:
    """Columns that a line takes, escape sequences left out."""
    return len(ESCAPE.sub("", text))


def clip(text: str, columns: int) -> str:
    """The line cut to a number of columns, with … where something is missing."""
    if visible(text) <= columns:
        return text
    kept, taken, place = [], 0, 0
    for match in ESCAPE.finditer(text):
        piece = text[place : match.start()][: columns - 1 - taken]
        kept += [piece, match[0]]
        taken, place = taken + len(piece), match.end()
    return "".join(kept) + text[place:][: columns - 1 - taken] + "…"
