"""A terminal for tests: a stream that says it is one, and what it would show."""

import io
import re

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


def screen(written: str, columns: int = 80) -> list[str]:
    """What a terminal shows after these characters."""
    lines, row, column = [""], 0, 0
    for code, command, character in TOKEN.findall(written):
        if command == "A":
            row = max(0, row - int(code or 1))
        elif command == "K":
            lines[row] = lines[row][:column]
        elif command == "J":
            lines[row] = lines[row][:column]
            del lines[row + 1 :]
        elif character == "\r":
            column = 0
        elif character == "\n" or (character and column == columns):
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        if character and character not in "\r\n":
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
    return lines
