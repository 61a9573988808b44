"""Data in an object store, downloaded once into the image store and then read as local files.

<store>/remote/<key>/<name>   an object, or a folder of them
<store>/remote/<key>.lock     held while <key>.building is filled and renamed to <key>

<key> is a hash of the URL and of its objects' names, sizes, times and ETag. A replaced object is
therefore downloaded again. pyarrow and huggingface_hub find credentials in the environment
variables and files of each store's own programs, or in the machine's role.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Event

from pyarrow.fs import FileSelector, FileSystem, FileType, FSSpecHandler, PyFileSystem

from mtcon_ray.base.registry import HUB
from mtcon_ray.base.root_files import below, make_folder
from mtcon_ray.data.disk import build_folder, writable_store
from mtcon_ray.data.image_files import leads_outside
from mtcon_ray.errors import DISK_ERRORS, DataError

MAX_THREADS = 8
CHUNK_BYTES = 1 << 20
REPORT_SECONDS = 0.5
RETRY_SECONDS = 30  # the default of Google's client is 15 minutes
# The sources of credentials, by the start of a URL.
KEYS = {
    "s3://": "keys come from AWS's own variables and files, or from the machine's role",
    "gs://": "keys come from Google's own variables and files, or from the machine's role",
    HUB: "a token comes from HF_TOKEN or `hf auth login`",
}


@dataclass(frozen=True)
class Found:
    """The objects at a URL.

    objects holds each object's path in the object store, its name relative to the URL ("" for the
    URL itself), and its size in bytes. what is the spec field, for messages. key is the <key> of
    the module's docstring.
    """

    url: str
    what: str
    key: str
    objects: tuple[tuple[str, str, int], ...]

    @property
    def name(self) -> str:
        """Name of the file or folder: the URL's last component."""
        return PurePosixPath(self.url).name

    @property
    def num_bytes(self) -> int:
        """Total size of all objects, bytes."""
        return sum(size for _, _, size in self.objects)

    def place(self, store: Path) -> Path:
        """Returns the local path of the download, which need not exist yet."""
        return store / "remote" / self.key / self.name


def look(url: str, what: str) -> Found:
    """Returns the current objects at a URL. A URL ending in / is a folder.

    `what` is the spec field, for messages. Raises DataError if the URL has no objects or cannot be
    read.
    """
    tag = ""
    with store_errors(url, f"cannot read {what}"):
        files, base = open_store(url, what)

        if url.endswith("/"):
            listed = files.get_file_info(FileSelector(base, recursive=True))
        else:
            listed = [files.get_file_info(base)]
            if listed[0].type == FileType.File:
                # `get_file_info` has no ETag. The metadata of an opened stream has it.
                with files.open_input_stream(base) as stream:
                    tag = (stream.metadata() or {}).get("ETag", b"").decode()
        infos = [info for info in listed if info.type == FileType.File]
        if url.startswith(HUB):
            # The hub's listings have no times, but a hash of each file's content.
            hashes = (files.handler.fs.info(info.path)["blob_id"] for info in infos)
            tag = " ".join(map(str, hashes))
    objects = []
    total = hashlib.sha256(f"{url}\0{tag}\0".encode())
    for info in sorted(infos, key=lambda info: info.path):
        name = info.path.removeprefix(base).removeprefix("/")
        if leads_outside(name):
            raise DataError(f"{what}: the name {name!r} leads out of {url}")
        objects.append((info.path, name, info.size))
        hashed = name or PurePosixPath(base).name
        total.update(f"{hashed}\0{info.size}\0{info.mtime_ns}\0".encode())
    if not objects:
        raise DataError(f"{what} not found: nothing is stored at {url}")
    return Found(url, what, total.hexdigest()[:32], tuple(objects))


def fetch(
    found: Mapping[str, Found], store: Path, report: Callable[[int, int], None] | None = None
) -> dict[str, str]:
    """Downloads the objects not yet downloaded by any process. Returns the local paths.

    `found` and the result are by spec field. `report(done, total)` is called with bytes, about
    every REPORT_SECONDS. Raises DataError if an object cannot be read completely, ResourceError if
    the disk is too small or not writable. Partial downloads are removed after an error.
    """
    missing = [f for f in found.values() if not f.place(store).exists()]
    before, total = 0, sum(f.num_bytes for f in missing)

    def tell(done: int) -> None:
        if report is not None:
            report(before + done, total)

    with writable_store(store):
        for each in missing:
            folder = each.place(store).parent
            make_folder(folder.parent)
            build_folder(folder, each.num_bytes, partial(_download, each, tell))
            before += each.num_bytes
    return {field: str(f.place(store)) for field, f in found.items()}


def _download(found: Found, tell: Callable[[int], None], folder: Path) -> None:
    """Downloads all objects into a folder. Calls `tell` with the bytes downloaded so far."""
    failure = f"cannot read {found.what}"
    with store_errors(found.url, failure):
        files, _ = open_store(found.url, found.what)
    written: dict[str, int] = {}
    stopping = Event()

    def copy(path: str, name: str, size: int) -> None:
        to = folder / found.name / name
        make_folder(to.parent)
        count = 0
        with (
            store_errors(found.url, failure),
            files.open_input_stream(path) as stream,
            open(to, "wb", opener=below) as file,
        ):
            while (data := stream.read(CHUNK_BYTES)) and not stopping.is_set():
                count += file.write(data)
                written[path] = count
            file.flush()
            os.fsync(file.fileno())
        if count != size and not stopping.is_set():
            raise DataError(
                f"{found.what} changed during its download: {path!r} now has {count} bytes instead "
                f"of {size}; try again"
            )

    with ThreadPoolExecutor(MAX_THREADS) as pool:
        running = {pool.submit(copy, *each) for each in found.objects}
        try:
            while running:
                ended, running = wait(running, REPORT_SECONDS)
                for task in ended:
                    task.result()
                tell(sum(written.values()))
        finally:  # after an error or a KeyboardInterrupt threads would otherwise download on
            stopping.set()
            pool.shutdown(cancel_futures=True)


def open_store(url: str, what: str) -> tuple[FileSystem, str]:
    """Returns the object store of a URL, and the URL's path in it, without a slash at its end.

    `what` is the spec field, for messages. Call it, and use its result, within `store_errors`.
    """
    path = url.partition("://")[2].rstrip("/")
    if url.startswith(HUB):
        return _open_hub(url, what), path

    # Only the bucket: an object key may contain characters with a meaning in a URI.
    bucket = "/".join(url.split("/")[:3])
    options = f"?retry_limit_seconds={RETRY_SECONDS}" if url.startswith("gs:") else ""
    return FileSystem.from_uri(bucket + options)[0], path


def _open_hub(url: str, what: str) -> FileSystem:
    """Returns the hub of Hugging Face. Raises DataError without the package for it."""
    try:
        from huggingface_hub import HfFileSystem
    except ImportError:
        raise DataError(
            f"cannot read {what}: {url} needs the package huggingface-hub; install it with "
            "`pip install 'mtcon-ray[hf]'`"
        ) from None
    return PyFileSystem(FSSpecHandler(HfFileSystem(skip_instance_cache=True)))


@contextmanager
def store_errors(url: str, failure: str) -> Iterator[None]:
    """Turns errors of pyarrow and huggingface_hub into a DataError without credentials.

    Errors of this machine's disk are raised unchanged. The message begins with `failure`, such as
    "cannot read data.csv".
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        # Base classes of pyarrow's errors, and its error where it is built without a kind of
        # store. huggingface_hub passes on errors of its HTTP library.
        known = isinstance(error, OSError | ValueError | ImportError) or url.startswith(HUB)
        if not known or getattr(error, "errno", None) in DISK_ERRORS:
            raise
        keys = next(text for scheme, text in KEYS.items() if url.startswith(scheme))
        raise DataError(
            f"{failure} at {url}: {' '.join(str(error).split())[:300]}; {keys}"
        ) from None
