"""The study's journal: Optuna's log lines in a file, safe against kills and full disks.

Optuna's own file backend appends behind a torn line, and then every reader fails. Its lock is a
symbolic link and stays after its process is killed.
"""

import json
import os
from collections.abc import Generator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend

from mtcon_ray.base.root_files import below, check_no_links
from mtcon_ray.errors import StorageError, SweepError
from mtcon_ray.records.event_log import append_durably


class Journal(JournalFileBackend):
    """Optuna's journal file, for the only driver of a sweep.

    A line torn by a kill, a power cut or a full disk is removed before the next line is written. No
    lock is taken here: the driver holds `lock.driver_lock`, which the kernel frees at its end.
    """

    def __init__(self, path: Path) -> None:
        check_no_links(path)
        try:
            super().__init__(str(path))
        except OSError as error:
            raise StorageError.of(path, error) from error
        self._path = path

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yields the complete lines from a number on. Raises SweepError for a damaged line."""
        try:
            yield from super().read_logs(log_number_from)
            # Optuna takes a damaged last line for a torn line, and the driver would append to it.
            json.loads(_last_whole_line(self._path) or b"{}")
        # A torn last line has no line break and is not damage: Optuna's reader ignores it.
        except (ValueError, RecursionError) as error:
            raise damaged(self._path, error) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Writes the lines durably or not at all. Raises StorageError."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        end = _end_of_whole_lines(self._path)
        try:
            append_durably(self._path, end, text.encode())
        except StorageError:
            append_durably(self._path, end, b"")
            raise


def damaged(path: Path, problem: object) -> SweepError:
    """Returns the error for a journal with a damaged line."""
    return SweepError(
        f"{path} is damaged ({problem}); restore the file from a backup, or start a new sweep with "
        "another --name"
    )


def _last_whole_line(path: Path) -> bytes:
    """Returns the last line with a line break, or b"" without any line break."""
    if not (end := _end_of_whole_lines(path)):
        return b""
    with (
        open(path, "rb", opener=below) as file,
        mmap(file.fileno(), end, access=ACCESS_READ) as lines,
    ):
        return lines[lines.rfind(b"\n", 0, end - 1) + 1 :]


def _end_of_whole_lines(path: Path) -> int:
    """Returns the offset after the last line break, or 0 without any line break."""
    with open(path, "rb", opener=below) as file:
        if not file.seek(0, os.SEEK_END):
            return 0  # an empty file cannot be mapped
        # Mapped, because a search from the end then reads only the last page of a long journal.
        with mmap(file.fileno(), 0, access=ACCESS_READ) as lines:
            return lines.rfind(b"\n") + 1
