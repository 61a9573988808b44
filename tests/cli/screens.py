"""Terminals for tests: a stream that is one, a pseudo terminal, and the screen they show."""

import io
import re
import unicodedata

HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", re.DOTALL)


class Clock:
    """Seconds that pass only when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Tty(io.StringIO):
    """A terminal of 80 columns by 24 lines that remembers what was written."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def columns_of(text: str) -> int:
    """Returns the columns that a terminal takes for a line."""
    return sum(1 + (unicodedata.east_asian_width(character) in "WF") for character in text)


def screen(written: str, columns: int = 80) -> list[str]:
    """Returns the lines that a terminal shows after these characters."""
    cells: list[list[str]] = [[]]  # a wide character is followed by an empty cell
    row, column = 0, 0
    for code, command, character in TOKEN.findall(written):
        if command == "A":
            row = max(0, row - int(code or 1))
        elif command == "K":
            cells[row] = [] if code == "2" else cells[row][:column]
        elif command == "J":
            cells[row] = cells[row][:column]
            del cells[row + 1 :]
        elif character == "\r":
            column = 0
        elif character == "\t":
            column += 8 - column % 8
        elif character == "\n" or (character and column == columns):
            row, column = row + 1, 0
            cells += [[]] * (row + 1 - len(cells))
        if character and character not in "\r\n\t":
            shown = [character, ""][: columns_of(character)]
            line = [*cells[row], *" " * (column - len(cells[row]))]
            cells[row] = line[:column] + shown + line[column + len(shown) :]
            column += len(shown)
    while len(cells) > row + 1 and not any(cells[-1]):
        cells.pop()
    return ["".join(line).rstrip() for line in cells]
