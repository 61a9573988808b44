"""The files of a trial in an object store, beside the files of its process on this node.

<trial>/last-<attempt>-<step>.pt                the two newest resume states
<trial>/model-<attempt>-<epoch>.pt              the newest network
<trial>/predictions-<attempt>-<epoch>.npz       the predictions behind the test scores
<trial>/removed.txt                             the reason why the networks were removed

An attempt is named "<driver>.<try>". Names of a later attempt sort after all names of an earlier
attempt, and a reader takes the last name. A process that outlives its driver thus changes nothing.
"""

import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mtcon_ray.base.paths import (
    LAST_FILE,
    MODEL_FILE,
    PREDICTIONS_FILE,
    PREVIOUS_FILE,
    REMOVED_FILE,
    stored_url,
)
from mtcon_ray.base.root_files import remove
from mtcon_ray.data.objects import Objects, patiently
from mtcon_ray.errors import StorageError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo

# In the order of uploads: a resume state may name the network as the best.
KINDS = {MODEL_FILE: 1, PREDICTIONS_FILE: 1, LAST_FILE: 2}
NETWORKS = (MODEL_FILE, LAST_FILE, PREVIOUS_FILE)
NAME = re.compile(r"(model|predictions|last)-\d{5}\.\d{5}-\d{9}(\.pt|\.npz)")
# A save that the store does not take in this time stays on the node until the next save.
SAVE_SECONDS = 20.0

log = logging.getLogger(__name__)


def newest(names: Iterable[str]) -> dict[str, str]:
    """Returns the object behind each file of a trial's folder, from the names of its objects."""
    found = sorted(name for name in names if NAME.fullmatch(name))
    by_kind = {kind: [n for n in found if file_of(n) == kind] for kind in KINDS}
    files = {kind: of_kind[-1] for kind, of_kind in by_kind.items() if of_kind}
    if len(states := by_kind[LAST_FILE]) > 1:
        files[PREVIOUS_FILE] = states[-2]
    return files | ({REMOVED_FILE: REMOVED_FILE} if REMOVED_FILE in names else {})


def file_of(name: str) -> str:
    """Returns the name of the file in a trial's folder of which an object is a version."""
    return name.partition("-")[0] + Path(name).suffix


def fetch_files(
    objects: Objects, found: Mapping[str, "FileInfo"], folder: Path, wanted: Iterable[str]
) -> None:
    """Makes a trial's folder of this machine equal to its objects, for the wanted files.

    Raises StorageError. A file counts as equal if it has the size and the time of its object.
    """
    files, missing = newest(found), {}
    for name in wanted:
        path, info = folder / name, found.get(files.get(name, ""))
        if info is None:
            remove(path)
        elif not path.exists() or _stamp(path) != (info.size, info.mtime_ns):
            missing[files[name]] = path, info.size
    objects.fetch(missing)
    for name, (path, _) in missing.items():
        os.utime(path, ns=(found[name].mtime_ns,) * 2)


def _stamp(path: Path) -> tuple[int, int]:
    info = path.stat()
    return info.st_size, info.st_mtime_ns


def discard_objects(url: str, files: Collection[str]) -> None:
    """Removes the objects behind files of a trial."""
    objects = Objects(url)
    found = patiently(objects.list)
    doomed = [n for n in found if NAME.fullmatch(n) and file_of(n) in files]
    patiently(lambda: objects.delete(doomed))


def kept_files(folder: Path) -> list[str]:
    """Returns the paths or URLs of a finished training's network and predictions.

    Returns no paths without the network. Raises StorageError.
    """
    names = (MODEL_FILE, PREDICTIONS_FILE)
    if url := stored_url(folder):
        objects = newest(patiently(Objects(url).list))
        found = {name: f"{url}/{objects[name]}" for name in names if name in objects}
    else:
        found = {name: str(folder / name) for name in names if (folder / name).exists()}
    return [*found.values()] if MODEL_FILE in found else []


class StoredTrial:
    """The copy of a trial's folder in a store, for the attempt of this process.

    `check` raises PreemptedError if a later driver has taken over. With `lazy` a network is
    uploaded together with the next resume state.
    """

    def __init__(
        self, url: str, folder: Path, attempt: str, check: Callable[[], None], *, lazy: bool
    ) -> None:
        self._objects, self._folder, self._attempt = Objects(url), folder, attempt
        self._check, self._lazy = check, lazy
        self._names: set[str] = set()
        self._left: dict[str, int] = {}  # files to be uploaded, with their numbers

    def fetch(self) -> None:
        """Downloads the newest files of earlier attempts. Raises StorageError."""
        patiently(self._fetch)

    def _fetch(self) -> None:
        found = self._objects.list()
        self._names = set(found)
        fetch_files(self._objects, found, self._folder, NETWORKS)

    def put(self, path: Path, number: int, *, must: bool) -> None:
        """Uploads a new version of a file, with its step or epoch as the number.

        Without `must` it stays on the node if the store does not take it in SAVE_SECONDS. With
        `must` raises StorageError after GIVE_UP_SECONDS. Raises PreemptedError.
        """
        self._left[path.name] = number
        if self._lazy and path.name == MODEL_FILE and not must:
            return
        try:
            patiently(self._put_all, None if must else SAVE_SECONDS)
        except StorageError as error:
            if must:
                raise
            log.warning("%s; the checkpoint stays on this node until the next", error)

    def _put_all(self) -> None:
        self._check()
        for kind in [kind for kind in KINDS if kind in self._left]:
            self._upload(kind, self._left[kind])
            del self._left[kind]

    def _upload(self, kind: str, number: int) -> None:
        stem, suffix = Path(kind).stem, Path(kind).suffix
        name = f"{stem}-{self._attempt}-{number:09d}{suffix}"
        self._objects.upload(self._folder / kind, name)
        self._names.add(name)
        same = sorted(n for n in self._names if NAME.fullmatch(n) and file_of(n) == kind)
        with suppress(StorageError):  # they are removed with the next
            self._objects.delete(outdated := same[: -KINDS[kind]])
            self._names -= set(outdated)
