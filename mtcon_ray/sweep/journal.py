"""The study's journal: Optuna's lines in a file that no kill and no full disk spoils.

Optuna's own file backend appends behind a line that was cut in two, after which every reader fails,
and its lock is a link that outlives a killed holder.
"""

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

from optuna.storages.journal import JournalFileBackend

from mtcon_ray.errors import StorageError, SweepError


class Journal(JournalFileBackend):
    """Optuna's journal file, for the one driver of a sweep.

    A line torn by a kill, a power cut or a full disk is cut off before the next is written. The
    driver's own lock (`lock.driver_lock`), which the kernel drops with its holder, is the only one.
    """

    def __init__(self, path: Path) -> None:
        try:
            super().__init__(str(path))
        except OSError as error:
            raise StorageError.of(path, error) from error
        self._path = path

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yields the whole lines from that number on. Raises SweepError for a damaged one."""
        try:
            yield from super().read_logs(log_number_from)
        except ValueError as error:
            # Optuna ignores a torn last line.
            raise SweepError(
                f"{self._path} must hold one JSON object a line, got {error}; restore the file "
                "from a backup, or start the sweep anew under another --name"
            ) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Writes the lines durably or not at all. Raises StorageError."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        try:
            with open(self._path, "r+b", buffering=0) as file:
                _append(file, text.encode())
        except OSError as error:
            raise StorageError.of(self._path, error) from error


class ReadOnlyJournal(Journal):
    """The journal of a sweep that another process may be driving."""

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuses: a command that shows a sweep writes nothing into its journal."""
        raise AssertionError(f"{self._path} is open for reading only, got {logs}")


def _append(file: BinaryIO, data: bytes) -> None:
    end = _end_of_whole_lines(file)
    file.truncate(end)
    file.seek(end)
    try:
        while data:
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    except OSError:
        file.truncate(end)
        raise


def _end_of_whole_lines(file: BinaryIO) -> int:
    """Returns the offset behind the last line end, 0 without one."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - 4096)
        file.seek(start)
        line_end = file.read(end - start).rfind(b"\n")
        if line_end >= 0:
            return start + line_end + 1
        end = start
    return 0
