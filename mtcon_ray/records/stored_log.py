"""The event log of a sweep in an object store, as numbered segments that never change.

log/parts/<driver>-<offset>   the lines from this byte of the log on, by the driver of this number
log/<driver>-0                the whole log, written by a driver at its end in place of the parts
summary.json.gz               spec, plan and log, for list, status and best

A driver continues the log as it finds it. What an earlier driver writes later does not count.
"""

import gzip
import json
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from io import BytesIO
from pathlib import Path

from mtcon_ray.base.lock import ELSEWHERE_FILE
from mtcon_ray.base.paths import PLAN_FILE, SPEC_FILE, event_file
from mtcon_ray.base.root_files import make_folder, remove, replace, touch
from mtcon_ray.data.objects import MAX_THREADS, Objects
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import NO_EVENT, EventLog, read_part
from mtcon_ray.records.events import Event

FOLDER, SUMMARY = "log", "summary.json.gz"
SUMMED = SPEC_FILE, PLAN_FILE, event_file(Path()).name
PARTS = f"{FOLDER}/parts"
SEGMENT = re.compile(FOLDER + r"/(?:parts/)?(\d{6})-(\d+)")
READS = 3
LATE_SECONDS = 60.0
MAX_SUMMARY_BYTES = 1_000_000_000  # unpacked


class StoredLog(EventLog):
    """Writer of a sweep's event log and of its segments.

    `done` is the number of bytes that the store has. `publish` is called after each `append`.
    """

    def __init__(
        self, objects: Objects, path: Path, driver: int, done: int, publish: Callable[[], None]
    ) -> None:
        super().__init__(path)
        self._objects, self._driver, self.done, self._publish = objects, driver, done, publish

    def append(self, *events: Event) -> list[Event]:
        """Writes events durably, also in the store, and returns them with their times."""
        timed = super().append(*events)
        self._publish()
        return timed

    def push(self) -> None:
        """Uploads all written lines. Raises StorageError."""
        if (end := self.end) > self.done:
            data = read_part(self.path, self.done, end - self.done)
            self._objects.write(f"{PARTS}/{self._driver:06d}-{self.done}", data)
            self.done = end

    def join(self) -> None:
        """Writes the whole log as one object. Raises StorageError."""
        whole = f"{FOLDER}/{self._driver:06d}-0"
        self._objects.write(whole, read_part(self.path, 0, self.done))
        matches = map(SEGMENT.fullmatch, self._objects.list(FOLDER))
        own = {match[0] for match in matches if match and int(match[1]) <= self._driver}
        self._objects.delete(own - {whole})


def read_log(objects: Objects) -> bytes:
    """Returns the log in the segments. Raises SweepError if one is missing, and StorageError."""
    for _ in range(READS):
        matches = filter(None, map(SEGMENT.fullmatch, objects.list(FOLDER)))
        found = sorted((int(match[1]), int(match[2]), match[0]) for match in matches)
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            contents = list(pool.map(objects.read, [name for _, _, name in found]))
        if None not in contents:
            break  # else the log was joined meanwhile
    data, before = b"", 0
    first = max((driver for driver, offset, _ in found if not offset), default=0)
    for (driver, offset, _), segment in zip(found, contents, strict=True):
        if driver < first:  # the log of a later driver begins at byte 0
            continue
        if driver != before:  # the log, up to where this driver took over
            data, before = data[:offset], driver
        if offset > len(data) or segment is None:
            raise SweepError(
                f"{objects.url} is damaged: it lacks the event log from byte {len(data)} to "
                f"{offset}; restore its folder {FOLDER} from a backup"
            )
        if offset + len(segment) > len(data):
            data = data[:offset] + segment
    return data


def write_summary(objects: Objects, folder: Path, seconds: float | None) -> int:
    """Writes the summary of a sweep and returns its size in bytes. Raises StorageError.

    The next summary follows in this many seconds, None after the last.
    """
    # A damaged log is copied too: its readers name the damage.
    texts = {name: (folder / name).read_bytes().decode(errors="replace") for name in SUMMED}
    whole = {**texts, "until": time.time() + seconds if seconds else 0}
    packed = gzip.compress(json.dumps(whole).encode(), compresslevel=5)
    objects.write(SUMMARY, packed)
    return len(packed)


def read_summary(objects: Objects, folder: Path) -> bool:
    """Writes spec, plan and log to a folder, as in the summary. Returns False without a whole one.

    The folder counts as driven until shortly after the next summary is due.

    Raises StorageError.
    """
    if (packed := objects.read(SUMMARY)) is None:
        return False
    try:
        with gzip.open(BytesIO(packed)) as unpacked:
            raw = json.loads(unpacked.read(MAX_SUMMARY_BYTES))
        texts, until = {folder / name: str(raw[name]) for name in SUMMED}, float(raw["until"])
        first = texts[event_file(folder)].partition("\n")[0]
        begun = datetime.fromtimestamp(int(json.loads(first)["time_ms"]) / 1e3).timestamp()
    except (OSError, EOFError, ArithmeticError, *NO_EVENT, LookupError, TypeError):
        return False  # it is damaged
    make_folder(folder)
    for path, text in texts.items():
        replace(path, text)
    os.utime(folder / SPEC_FILE, (begun, begun))  # for the order of `list`
    is_driven = time.time() < until + LATE_SECONDS
    (touch if is_driven else remove)(folder / ELSEWHERE_FILE)
    return True
