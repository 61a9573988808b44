"""The study's journal: Optuna's log lines in a file that survives kills and full disks.

Optuna's own file backend appends behind a torn line, after which every reader fails, and its lock
is a symbolic link that outlives a killed process.
"""

import json
import os
from collections.abc import Generator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend

from mtcon_ray.errors import StorageError, SweepError
from mtcon_ray.tracking.event_log import append_durably


class Journal(JournalFileBackend):
    """Optuna's journal file, for the one driver of a sweep.

    A line torn by a kill, a power cut or a full disk is removed before the next one is written. No
    lock is taken here: the driver holds `lock.driver_lock`, which the kernel frees at its end.
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
            # A torn last line is not damage: Optuna's reader ignores it.
            raise SweepError(
                f"{self._path} must hold one JSON object a line, got {error}; restore the file "
                "from a backup, or start the sweep anew under another --name"
            ) from None

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Writes the lines durably or not at all. Raises StorageError."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        end = _end_of_whole_lines(self._path)
        try:
            append_durably(self._path, end, text.encode())
        except StorageError:
            os.truncate(self._path, end)
            raise


def _end_of_whole_lines(path: Path) -> int:
    """Returns the offset after the last line break, 0 without one."""
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return 0  # an empty file cannot be mapped
        # Mapped, because a search from the end then reads the last page of a long journal only.
        with mmap(file.fileno(), 0, access=ACCESS_READ) as lines:
            return lines.rfind(b"\n") + 1
