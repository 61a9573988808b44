"""Terminals for tests: a stream that claims to be one, a pseudo terminal, and their screens."""

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS

TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(.)", re.DOTALL)


class Clock:
    """A clock in seconds that tests set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Tty(io.StringIO):
    """A stream that claims to be a terminal and stores what is written."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def screen(written: str, columns: int = 80) -> list[str]:
    """Returns the lines that a terminal shows after these characters."""
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
        elif character == "\t":
            column += 8 - column % 8
        elif character == "\n" or (character and column == columns):
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        if character and character not in "\r\n\t":
            lines[row] = lines[row][:column].ljust(column) + character + lines[row][column + 1 :]
            column += 1
    return lines


class Watched:
    """A command in a pseudo terminal of 200 columns by 50 lines."""

    def __init__(self, command: list[str], environment: dict[str, str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        self._process = subprocess.Popen(
            command, env={**environment, "TERM": "xterm"}, cwd=folder, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self._written = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ended(self) -> tuple[int, str]:
        """Waits for the end; returns the exit code and all characters written."""
        code = self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        os.close(self._ours)
        return code, self._written.decode()

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self._ours, 65_536)
            except OSError:  # Linux raises EIO when the last writer has closed the terminal
                return
            if not piece:
                return
            self._written += piece
