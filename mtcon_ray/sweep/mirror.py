"""Mirror of a sweep in an object store, from which the sweep is resumed if its disk is lost.

<mirror>/<sweep>/mirror.json      the files of a moment, and the object of each file
<mirror>/<sweep>/events.jsonl     the event log, which may be longer than mirror.json says
<mirror>/<sweep>/<path>-<time>    any other file: an object for each version, never changed

mirror.json is replaced by a single request, after its objects. It therefore names a complete state
at any moment, even if a pass is cut. A network is not older than the event log or the resume state
of its trial, because they may name it as the best network: networks are copied last.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import (
    LAST_FILE,
    PLAN_FILE,
    PREVIOUS_FILE,
    SPEC_FILE,
    event_file,
    list_trials,
    sent_file,
)
from mtcon_ray.base.root_files import below
from mtcon_ray.data.remote import CHUNK_BYTES
from mtcon_ray.errors import DataError, SweepError
from mtcon_ray.spec.resources import MIRROR_SECONDS
from mtcon_ray.sweep.mirror_objects import (
    KEPT,
    VERSION,
    Entry,
    Files,
    Objects,
    first_missing,
    url_of,
)
from mtcon_ray.tracking.lifecycle import DRAIN_SECONDS, STOPPED_DRAIN_SECONDS

RETRY_SECONDS = 1.0  # between two passes at the end, while the store fails

log = logging.getLogger(__name__)


class Mirror:
    """The mirror of the sweep in a folder. Its methods raise DataError if the store fails.

    They raise SweepError if the mirror has data that the folder lacks: another sweep of this name,
    or later data of another driver. `is_cut` is called between requests. If it returns True, the
    pass raises CutError.
    """

    def __init__(
        self, folder: Path, mirror: str, is_cut: Callable[[], bool] = lambda: False
    ) -> None:
        self.folder = folder
        self.url = url_of(mirror, folder.name)
        self._objects = Objects(self.url)
        self._is_cut = is_cut
        self._known: Files = {}  # a state known to be in this folder
        self._sent: set[str] = set()  # sent versions, perhaps not yet in mirror.json

    def claim(self) -> None:
        """Checks that the mirror belongs to this folder and is writable."""
        self._objects.write_list(self._state())

    def copy(self) -> int:
        """Copies all changes and returns the number of files in the mirrored state."""
        self._check()
        known = self._state()
        files: dict[str, Entry] = {}
        trials = list_trials(self.folder)
        # Before the log, since it must not be ahead of it.
        self._copy_whole(sent_file(self.folder), known, files)
        for trial in trials:
            # A kill between two renames leaves only the previous state.
            if not self._copy_whole(trial / LAST_FILE, known, files):
                self._copy_whole(trial / PREVIOUS_FILE, known, files)
        self._copy_lines(event_file(self.folder), known, files)
        for path in (*(t / n for t in trials for n in KEPT), *self._beginnings()):
            self._copy_whole(path, known, files)
        if files != known:
            self._objects.write_list(files)
            self._known = files
        self._discard_others(files)
        return len(files)

    def _beginnings(self) -> Iterable[Path]:
        return (self.folder / SPEC_FILE, self.folder / PLAN_FILE)

    def _state(self) -> Files:
        """Returns the mirrored state. Raises SweepError if the folder does not contain it."""
        files = self._objects.read_list() or {}
        if files != self._known and (path := first_missing(self.folder, files)):
            raise SweepError(
                f"{self.url} holds another sweep, or newer files than {self.folder}: {path} "
                f"differs; to continue the sweep of the mirror: `mtcon-ray resume {self.url}` with "
                "an unused --root; for a new sweep: another --name or storage.mirror"
            )
        self._known = files
        return files

    def _copy_lines(self, path: Path, known: Files, files: dict[str, Entry]) -> None:
        """Copies the complete lines of a growing file, unless they are mirrored already."""
        name = self._name(path)
        if not path.exists():
            return
        with open(path, "rb", opener=below) as file:
            data = file.read()
        lines = data[: data.rfind(b"\n") + 1]
        entry = Entry(name, len(lines), sha256=sha256(lines).hexdigest())
        if known.get(name) != entry:
            self._check()
            self._objects.write(name, [lines])
        files[name] = entry

    def _copy_whole(self, path: Path, known: Files, files: dict[str, Entry]) -> bool:
        """Copies a file that is only replaced as a whole. Returns False if it does not exist."""
        name = self._name(path)
        try:
            file = os.fdopen(below(str(path), os.O_RDONLY), "rb")
        except FileNotFoundError:
            return False
        with file:
            # The open file stays complete, even if its path is replaced or removed.
            stat = os.fstat(file.fileno())
            version = f"{name}-{stat.st_mtime_ns:x}"
            entry = Entry(version, stat.st_size, mtime_ns=stat.st_mtime_ns)
            if known.get(name) != entry and version not in self._sent:
                self._objects.write(version, self._chunks(file))
                self._sent.add(version)
        files[name] = entry
        return True

    def _chunks(self, file: BinaryIO) -> Iterator[bytes]:
        self._check()
        while data := file.read(CHUNK_BYTES):
            yield data
            self._check()

    def _check(self) -> None:
        if self._is_cut():
            raise CutError

    def _discard_others(self, files: Files) -> None:
        """Removes file versions that no longer belong to the state."""
        named = {entry.object for entry in files.values()}
        for name in self._objects.names():
            if name not in named and VERSION.fullmatch(name):
                self._check()
                self._objects.delete(name)
        self._sent &= named

    def _name(self, path: Path) -> str:
        return path.relative_to(self.folder).as_posix()


class CutError(DataError):
    """Error for a pass that was cut because its driver ends."""

    def __init__(self) -> None:
        super().__init__("the time at the end was too short")


class MirrorThread:
    """Copier of a folder to its mirror, in a thread. Training never waits for it."""

    def __init__(self, folder: Path, mirror: str) -> None:
        self._cut, self._ending, self._retry = threading.Event(), threading.Event(), False
        self.mirror = Mirror(folder, mirror, self._cut.is_set)
        self.error: str | None = None
        self._thread = threading.Thread(target=self._work, daemon=True, name="mtcon-mirror")

    def start(self) -> None:
        """Starts the thread. Its first pass is a minute later."""
        self._thread.start()

    def close(self, timeout: float, *, retry: bool) -> str | None:
        """Copies once more and returns the reason if the mirror is incomplete, else None.

        Takes at most `timeout` seconds. With `retry` a failed copy is repeated until then. Without
        it, a single attempt is made: a store without an answer takes most of a short time.
        """
        self._retry = retry
        self._ending.set()
        self._thread.join(timeout)
        self._cut.set()
        return self.error or (str(CutError()) if self._thread.is_alive() else None)

    def _work(self) -> None:
        while not self._ending.wait(MIRROR_SECONDS):
            self._attempt()
        self._attempt()
        while self._retry and self.error is not None and not self._cut.wait(RETRY_SECONDS):
            self._attempt()

    def _attempt(self) -> None:
        try:
            self.mirror.copy()
            self.error = None
        except Exception as error:  # an error of the store must not stop the training
            if str(error) != self.error and not self._ending.is_set():
                log.warning("%s; the sweep continues", error)
            self.error = str(error)
            # Not repeated after a SweepError: the data of another driver must stay there.
            self._retry = self._retry and not isinstance(error, SweepError)


@contextmanager
def mirrored(
    folder: Path, mirror: str | None, callbacks: Callbacks, *, resume: bool
) -> Iterator[None]:
    """Mirrors a sweep's folder while its driver runs, and once more at the end.

    Raises DataError if the store fails at the start of a new sweep. A resumed sweep only warns.
    Raises SweepError if the mirror has other content than the folder.
    """
    if mirror is None:
        yield
        return
    thread = MirrorThread(folder, mirror)
    try:
        thread.mirror.claim()
    except DataError as error:
        if not resume:
            raise
        callbacks.on_note(f"{error}; the sweep continues and is copied when the store answers")
    thread.start()
    stopped = True
    try:
        yield
        stopped = False
    finally:
        limit = STOPPED_DRAIN_SECONDS if stopped else DRAIN_SECONDS
        if why := thread.close(limit, retry=not stopped):
            callbacks.on_note(
                f"THE MIRROR IS INCOMPLETE ({why}); the local files are complete: send the rest "
                f"with `mtcon-ray mirror {folder.name} --root {folder.parent.parent}`"
            )
