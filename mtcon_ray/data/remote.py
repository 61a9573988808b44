"""Data in an object store, downloaded once into the image store and then read as local files.

<store>/remote/<key>/<name>   an object, or a folder of them
<store>/remote/<key>.lock     held while <key>.building is filled and renamed to <key>

<key> is a hash of the URL and of its objects' names, sizes and times. A replaced object is
therefore downloaded again.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import NamedTuple

from mtcon_ray.data.disk import build_folder
from mtcon_ray.data.objects import Objects, Tell
from mtcon_ray.errors import DataError

Report = Callable[[int, int], None]  # called with the part done and the whole


class Found(NamedTuple):
    """The objects at a URL.

    sizes has each object's size in bytes, by its name relative to the URL ("" for the URL itself).
    key is the <key> of the module's docstring.
    """

    url: str
    objects: Objects
    key: str
    sizes: dict[str, int]

    @property
    def num_bytes(self) -> int:
        """Total size of all objects, bytes."""
        return sum(self.sizes.values())

    def place(self, store: Path) -> Path:
        """Returns the local path of the download, which need not exist yet."""
        return store / "remote" / self.key / PurePosixPath(self.url).name

    def download(self, tell: Tell, folder: Path) -> None:
        """Downloads all objects into a folder. Calls `tell` with the bytes of each part."""
        top = folder / PurePosixPath(self.url).name
        self.objects.fetch({name: (top / name, size) for name, size in self.sizes.items()}, tell)


def look(url: str, what: str) -> Found:
    """Returns the current objects at a URL. A URL ending in / is a folder.

    `what` is the spec field, for messages. Raises DataError if the URL has no objects or cannot be
    read.
    """
    objects = Objects(url.rstrip("/"), f"cannot read {what}", DataError)
    infos = objects.list() if url.endswith("/") else objects.itself()
    if not infos:
        raise DataError(f"{what} not found: nothing is stored at {url}")
    total = hashlib.sha256(url.encode())
    for name, info in sorted(infos.items()):
        total.update(f"\0{name}\0{info.size}\0{info.mtime_ns}".encode())
    sizes = {name: info.size for name, info in infos.items()}
    return Found(url, objects, total.hexdigest()[:32], sizes)


def fetch(found: dict[str, Found], store: Path, report: Report = lambda *_: None) -> dict[str, str]:
    """Downloads the objects not yet downloaded by any process. Returns the local paths.

    `found` and the result are by spec field. `report(done, total)` is called with bytes. Raises
    DataError if an object cannot be read completely, ResourceError if the disk is too small or not
    writable. Partial downloads are removed after an error.
    """
    missing = [f for f in found.values() if not f.place(store).exists()]
    done, total, turn = 0, sum(f.num_bytes for f in missing), Lock()

    def tell(num_bytes: int) -> None:
        nonlocal done
        with turn:
            done += num_bytes
            report(done, total)

    for each in found.values():
        build_folder(each.place(store).parent, each.num_bytes, partial(each.download, tell))
    return {field: str(f.place(store)) for field, f in found.items()}
