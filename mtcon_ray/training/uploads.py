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
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mtcon_ray.base import paths
from mtcon_ray.base.root_files import remove
from mtcon_ray.data.disk import Check
from mtcon_ray.data.objects import Objects, patiently
from mtcon_ray.errors import StorageError

# In the order of uploads: a resume state may name the network as the best.
KINDS = {paths.MODEL_FILE: 1, paths.PREDICTIONS_FILE: 1, paths.LAST_FILE: 2}
NETWORKS = (paths.MODEL_FILE, paths.LAST_FILE, paths.PREVIOUS_FILE)
NAME = re.compile(r"(model|predictions|last)-\d{5}\.\d{5}-\d{9}(\.pt|\.npz)")
# A save that the store does not take in this time stays on the node until the next save.
SAVE_SECONDS = 20.0

log = logging.getLogger(__name__)


def newest(names: Iterable[str]) -> dict[str, str]:
    """Returns the object behind each file of a trial's folder, from the names of its objects."""
    files = {paths.REMOVED_FILE: paths.REMOVED_FILE} if paths.REMOVED_FILE in names else {}
    for name in sorted(name for name in names if NAME.fullmatch(name)):
        kind = file_of(name)
        if kind == paths.LAST_FILE and kind in files:
            files[paths.PREVIOUS_FILE] = files[kind]
        files[kind] = name
    return files


def file_of(name: str) -> str:
    """Returns the name of the file in a trial's folder of which an object is a version."""
    return name.partition("-")[0] + Path(name).suffix


def _is_version(name: str, files: Collection[str]) -> bool:
    return NAME.fullmatch(name) is not None and file_of(name) in files


def fetch_files(
    objects: Objects, found: Mapping[str, Any], folder: Path, wanted: Iterable[str]
) -> None:
    """Makes a trial's folder of this machine equal to its objects, for the wanted files.

    `found` are pyarrow's FileInfos by name. A file counts as equal if it has the size and the time
    of its object. Raises StorageError.
    """
    files, missing = newest(found), dict[str, tuple[Path, int]]()
    for name in wanted:
        path = folder / name
        if name not in files:
            remove(path)
            continue
        info = found[files[name]]
        stat = path.stat() if path.exists() else None
        if stat is None or (stat.st_size, stat.st_mtime_ns) != (info.size, info.mtime_ns):
            missing[files[name]] = path, info.size
    objects.fetch(missing)
    for name, (path, _) in missing.items():
        os.utime(path, ns=(found[name].mtime_ns,) * 2)


def discard_objects(url: str, files: Collection[str]) -> None:
    """Removes the objects behind files of a trial."""
    objects = Objects(url)
    patiently(lambda: objects.delete(n for n in objects.list() if _is_version(n, files)))


def kept_files(folder: Path) -> list[str]:
    """Returns the paths or URLs of a finished training's network and predictions.

    Returns no paths without the network. Raises StorageError.
    """
    if url := paths.stored_url(folder):
        there = newest(patiently(Objects(url).list))
    else:
        there = {path.name: path.name for path in folder.glob("*")}
    names = (paths.MODEL_FILE, paths.PREDICTIONS_FILE) if paths.MODEL_FILE in there else ()
    return [f"{url or folder}/{there[name]}" for name in names if name in there]


class StoredTrial:
    """The copy of a trial's folder in a store, for the attempt of this process.

    `check` raises PreemptedError if a later driver has taken over. With `lazy` a network is
    uploaded together with the next resume state.
    """

    def __init__(self, url: str, folder: Path, attempt: str, check: Check, *, lazy: bool) -> None:
        self._objects, self._folder, self._attempt = Objects(url), folder, attempt
        self._check, self._lazy = check, lazy
        self._left: dict[str, int] = {}  # files to be uploaded, with their numbers

    def fetch(self) -> None:
        """Downloads the newest files of earlier attempts. Raises StorageError."""
        objects = self._objects
        patiently(lambda: fetch_files(objects, objects.list(), self._folder, NETWORKS))

    def put(self, path: Path, number: int, *, must: bool) -> None:
        """Uploads a new version of a file, with its step or epoch as the number.

        Without `must` it stays on the node if the store does not take it in SAVE_SECONDS. With
        `must` raises StorageError after GIVE_UP_SECONDS. Raises PreemptedError.
        """
        self._left[path.name] = number
        if self._lazy and path.name == paths.MODEL_FILE and not must:
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
            number, suffix = self._left[kind], Path(kind).suffix
            name = f"{Path(kind).stem}-{self._attempt}-{number:09d}{suffix}"
            self._objects.write(name, self._folder / kind)
            del self._left[kind]
            with suppress(StorageError):  # outdated objects are removed with the next
                same = sorted(n for n in self._objects.list() if _is_version(n, [kind]))
                self._objects.delete(same[: -KINDS[kind]])
