"""The record of a sweep in an object store, and its copies on this machine.

<URL>/sweeps/<name>/spec.yaml, plan.json
<URL>/sweeps/<name>/claims/        see records/claim.py
<URL>/sweeps/<name>/log/           and summary.json.gz, see records/stored_log.py
<URL>/sweeps/<name>/checkpoints/   see training/uploads.py
<URL>/sweeps/<name>/weights/       initial weights of the encoders, for all nodes

A folder of the local root is a copy. Its driver writes there first, and its thread uploads.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from mtcon_ray.base import paths
from mtcon_ray.base.lock import ELSEWHERE_FILE, driver_lock, is_driven
from mtcon_ray.base.root_files import SWEEPS, make_folder, remove, remove_folder, touch
from mtcon_ray.data import objects as stores
from mtcon_ray.data.disk import whole_file
from mtcon_ray.data.objects import Objects, patiently
from mtcon_ray.errors import CheckpointError, StorageError, SweepError, nearest
from mtcon_ray.records.claim import Claim, is_held
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.records.stored_log import SUMMED, StoredLog, read_log, read_summary, write_summary
from mtcon_ray.training.uploads import fetch_files

END_SECONDS = 20.0  # less than a job or a pod is given to end
# A driver that could not renew its claim for so long asks for other claims before it writes.
UNSURE_SECONDS = 40.0
# Large summaries are rarer: at most so many bytes a second.
SUMMARY_RATE = 60_000
BEGINNINGS = (paths.SPEC_FILE, paths.PLAN_FILE)

log = logging.getLogger(__name__)


class StoredSweep:
    """The driver's side of a sweep in a store: its claim, the log, and the thread that uploads.

    `on_lost` is called from the thread with the reason if the driver must stop. Writes wait
    `patience` seconds for a store that does not answer.
    """

    def __init__(self, folder: Path, url: str, *, take_over: bool) -> None:
        self.folder, self._objects = folder, Objects(url)
        self.on_lost: Callable[[str], None] = lambda reason: None
        self.patience = stores.GIVE_UP_SECONDS
        self.claim = Claim(self._objects, folder.name, take_over=take_over)
        self._log: StoredLog | None = None
        self._lock = threading.Lock()  # of the upload of the log
        self._lost: str | None = None
        self._renewed = self._worked = time.monotonic()
        self._next_summary, self._pause = 0.0, stores.SUMMARY_SECONDS
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="mtcon-store")
        self._thread.start()

    def done(self) -> int:
        """Returns the number of bytes of the log in the store, -1 after the loss of the claim."""
        return self._log.done if self._log and not self._lost else -1

    def open_log(self) -> StoredLog:
        """Returns the writer of the event log, which continues the log in the store.

        Raises StorageError and SweepError.
        """
        done = patiently(lambda: fetch_log(self._objects, self.folder))
        path, driver = paths.event_file(self.folder), self.claim.number
        self._log = StoredLog(self._objects, path, driver, done, self._publish)
        for name in BEGINNINGS:
            patiently(partial(self._objects.write, name, self.folder / name))
        return self._log

    def _publish(self) -> None:
        """Uploads the log, and waits for a store that does not answer.

        Raises StorageError after `patience` seconds, or if another driver has taken over.
        """
        patiently(self._push, self.patience)
        if self._lost:
            raise StorageError(self._lost)

    def _push(self) -> None:
        with self._lock:
            if time.monotonic() - self._renewed > UNSURE_SECONDS and self.claim.is_lost():
                self._lose()
            if self._log and not self._lost:
                self._log.push()

    def _lose(self) -> None:
        other = f"another driver has taken over {self.folder.name}"
        self._lost = f"{other}, and this driver writes nothing more"
        self.on_lost(self._lost)

    def _work(self) -> None:
        while not self._ending.wait(stores.LAG_SECONDS) and not self._lost:
            try:
                self._beat()
                self._worked = time.monotonic()
            except Exception as error:  # the next beat may succeed
                log.warning("%s; it is tried again", error)
                if time.monotonic() - self._worked > stores.GIVE_UP_SECONDS:
                    self.on_lost(str(error))

    def _beat(self) -> None:
        self._push()
        if time.monotonic() - self._renewed >= stores.RENEW_SECONDS:
            if self.claim.is_lost():
                return self._lose()
            self.claim.renew()
            self._renewed = time.monotonic()
        if self.done() > 0 and time.monotonic() >= self._next_summary:
            size = write_summary(self._objects, self.folder, self._pause)
            self._pause = max(stores.SUMMARY_SECONDS, size / SUMMARY_RATE)
            self._next_summary = time.monotonic() + self._pause

    def close(self) -> None:
        """Uploads the rest, writes the log as one object, and ends the claim.

        Removes a sweep that has not begun. Raises StorageError after END_SECONDS.
        """
        self._ending.set()
        self._thread.join()
        if not self._lost:
            patiently(self._end, END_SECONDS)

    def _end(self) -> None:
        if self.claim.is_lost():
            return
        if self._log:
            self._push()
            if self._lost:  # the segments are another driver's
                return
            self._log.join()
        elif not self._objects.list("log"):
            return self._objects.remove()
        # Also without a log: a driver that was killed at its end may have left an older summary.
        if all((self.folder / name).exists() for name in SUMMED):
            write_summary(self._objects, self.folder, None)
        self.claim.end()


@contextmanager
def driven(
    folder: Path, tell: Callable[[str], None], *, take_over: bool
) -> Iterator[StoredSweep | None]:
    """Holds the claim of a sweep in an object store. Yields None for a root on a path.

    The caller holds the lock of the folder. `tell` is called with a text if the store lacks the end
    of the log. Raises SweepError if another driver has the claim, and StorageError.
    """
    if (url := paths.stored_url(folder)) is None:
        yield None
        return
    store = StoredSweep(folder, url, take_over=take_over)
    remove(folder / ELSEWHERE_FILE)
    try:
        yield store
    finally:
        try:
            store.close()
        except StorageError as error:
            rest = f"{paths.event_file(folder)} has it, and a resume on this machine uploads it"
            tell(f"the store lacks the end ({error}); {rest}")


def fetch_log(objects: Objects, folder: Path) -> int:
    """Makes the log of this machine the log in the store, and returns its number of bytes there.

    Lines that continue it here stay. Raises StorageError and SweepError.
    """
    data, path = read_log(objects), paths.event_file(folder)
    here = path.read_bytes() if path.exists() else b""
    if here != data and not (data and here.startswith(data)):
        if here.partition(b"\n")[0] != data.partition(b"\n")[0]:  # of another sweep of this name
            remove_folder(folder / "checkpoints", ignore_errors=True)
            remove(folder / paths.SENT_FILE)
        with whole_file(path) as file:
            file.write(data)
    return len(data)


def refresh_names(root: Path) -> None:
    """Makes a folder on this machine for each sweep of the store, empty if it is new here.

    Does nothing for a root on a path. Raises StorageError.
    """
    if url := paths.stored_url(root):
        for name in _names(url):
            make_folder(root / SWEEPS / name)


def _names(url: str) -> list[str]:
    found = (Path(name).name for name in Objects(url).list(SWEEPS, deep=False))
    return [name for name in found if paths.NAME.fullmatch(name)]


def find_sweep(root: Path, name: str, files: Iterable[str] = ()) -> Path:
    """Returns the folder of a sweep, with the wanted files of its trials.

    With a root in an object store it is a copy. Raises SweepError if there is no such sweep, with
    similar names, and StorageError.
    """
    folder = paths.sweep_folder(root, name)
    if not fetch_sweep(folder):
        url = paths.shown(root)
        raise SweepError(f"no sweep {name!r} under {url}{nearest(name, _names(url))}")
    fetch_trials(folder, files)
    return paths.find_folder(root, name)


def fetch_sweep(folder: Path) -> bool:
    """Makes the folder of a sweep a copy of its record in the store, unless its driver is here.

    Returns False if the store lacks the sweep. Does nothing for a root on a path. Raises
    StorageError and SweepError.
    """
    if (url := paths.stored_url(folder)) is None:
        return True
    objects = Objects(url)
    there = objects.list(deep=False)
    if paths.SPEC_FILE not in there:
        if left := sorted(there.keys() & {"log", "checkpoints"}):
            rest = f"restore it, remove {' and '.join(left)}, or give another --name"
            raise SweepError(f"{url} has {left[0]} but no {paths.SPEC_FILE}; {rest}")
        return False
    make_folder(folder)
    remove(folder / ELSEWHERE_FILE)
    if is_driven(folder):
        return True
    try:
        with driver_lock(folder):
            objects.fetch({n: (folder / n, there[n].size) for n in BEGINNINGS if n in there})
            fetch_log(objects, folder)
            if is_held(objects):
                touch(folder / ELSEWHERE_FILE)
    except SweepError:
        if not is_driven(folder):  # else another command copies it
            raise
    return True


def has_sweep(folder: Path) -> bool:
    """Returns True if a sweep with a spec has this folder. Copies its record from a store."""
    return fetch_sweep(folder) and (folder / paths.SPEC_FILE).exists()


def fetch_trials(folder: Path, files: Iterable[str], trial: str | None = None) -> None:
    """Makes files of all trials, or of one, copies of the store's. Raises StorageError."""
    url, wanted = paths.stored_url(folder), list(files)
    if url is None or not wanted:
        return
    trials: dict[str, dict[str, Any]] = {}
    for name, info in Objects(url).list(f"checkpoints/{trial or ''}").items():
        of, _, file = name.removeprefix("checkpoints/").partition("/")
        if paths.is_trial(of):
            trials.setdefault(of, {})[file] = info
    for of, found in trials.items():
        objects = Objects(f"{url}/checkpoints/{of}")
        fetch_files(objects, found, paths.checkpoint_folder(folder, of), wanted)


def summaries(root: Path, name: str | None = None) -> Path:
    """Returns a root with copies of all sweeps of a store, or of one of this name.

    Returns the root itself if it is a path. A sweep without a summary is copied whole. Sweeps that
    have not begun or cannot be read are left out, with a logged warning, unless they are named.
    Raises StorageError and SweepError.
    """
    if (url := paths.stored_url(root)) is None:
        return root
    seen = root / paths.SEEN
    names = [name] if name else _names(url)

    def fetch(of: str) -> None:
        try:
            if not read_summary(Objects(f"{url}/{SWEEPS}/{of}"), paths.sweep_folder(seen, of)):
                find_sweep(seen, of)
        except SweepError as error:
            if name:
                raise
            log.warning("%s", error)

    with ThreadPoolExecutor(stores.MAX_THREADS) as pool:
        list(pool.map(fetch, names))
    for folder in paths.list_folders(seen):
        if not name and folder.name not in names:
            remove_folder(folder)
    return seen


def find_network(name: str, root: Path) -> tuple[Path, SweepResults | None]:
    """Returns the checkpoint of a sweep's winner, or at a path, and any sweep.

    For an exported folder it returns the folder's model.json, unless a sweep has this name.

    Raises SweepError for an unknown name, MtconError if a sweep has no winner yet.
    """
    if Path(name).is_file():
        return Path(name), None
    try:
        sweep = load_sweep(find_sweep(root, name))
    except SweepError:
        if (card := Path(name) / paths.CARD_FILE).is_file():
            return card, None
        if not paths.NAME.fullmatch(name):
            raise CheckpointError(f"there is no checkpoint and no export at {name}") from None
        raise
    winner = sweep.required_winner()
    fetch_trials(sweep.folder, [paths.MODEL_FILE, paths.REMOVED_FILE], winner.name)
    return sweep.folder_of(winner) / paths.MODEL_FILE, sweep
