"""The objects below a URL of an object store that is written to: the root of sweeps.

Names are relative to the URL. An upload that the store does not take whole leaves no object.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mtcon_ray.base.root_files import below, make_folder
from mtcon_ray.data.disk import whole_file
from mtcon_ray.data.image_files import leads_outside
from mtcon_ray.errors import DataError, StorageError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

MAX_THREADS = 16  # requests at a time: a store answers after tens of milliseconds
PART_BYTES = 10 << 20  # pyarrow uploads larger objects in parts of this size
# A sweep waits for the store for so long, and asks again after so long.
GIVE_UP_SECONDS, RETRY_SECONDS = 600.0, 1.0
# Seconds of a root in an object store: reports may lag behind by the first. A driver renews its
# claim, and writes a summary, after the next two. A trial saves after the last by default.
LAG_SECONDS, RENEW_SECONDS, SUMMARY_SECONDS, SAVE_SECONDS = 5.0, 10.0, 20.0, 300.0
CHUNK_BYTES = 16 << 20  # each read of an object is a request
FAILURE = "cannot use the root"
AS_IT_IS: dict[str, Any] = {"compression": None}  # by default a name in .gz means compression


T = TypeVar("T")


def patiently(work: Callable[[], T], seconds: float | None = None) -> T:
    """Returns the result of `work`, which is repeated while the store fails.

    Raises its StorageError after this many seconds, by default GIVE_UP_SECONDS.
    """
    end = time.monotonic() + (GIVE_UP_SECONDS if seconds is None else seconds)
    while True:
        try:
            return work()
        except StorageError:
            if time.monotonic() >= end:
                raise
        time.sleep(RETRY_SECONDS)


class Objects:
    """The objects below a URL. Each method raises StorageError if the store fails."""

    def __init__(self, url: str) -> None:
        self.url = url

    @contextmanager
    def _opened(self) -> Iterator[tuple["FileSystem", str]]:
        """Yields the store and the URL's path in it."""
        from mtcon_ray.data.remote import store_errors  # imports pyarrow, as below

        try:
            with store_errors(self.url, FAILURE):
                bucket, path = "/".join(self.url.split("/")[:3]), self.url.partition("://")[2]
                yield _open(bucket), path
        except DataError as error:
            raise StorageError(str(error)) from None

    def list(self, folder: str = "", *, deep: bool = True) -> dict[str, "FileInfo"]:
        """Returns the objects below a folder by their names. With `deep=False` also its folders.

        Raises StorageError for a name that leads elsewhere: a bucket may be of another author.
        """
        from pyarrow.fs import FileSelector, FileType

        # A list of gs:// has no folders.
        all_below = deep or self.url.startswith("gs:")
        with self._opened() as (files, base):
            place = f"{base}/{folder}".rstrip("/")
            select = FileSelector(place, allow_not_found=True, recursive=all_below)
            found = files.get_file_info(select)
        named = {info.path.removeprefix(base).strip("/"): info for info in found}
        if wrong := [name for name in named if leads_outside(name)]:
            raise StorageError(f"{FAILURE} at {self.url}: it has an object {wrong[0]!r}")
        if all_below and not deep:
            depth = 1 + len(Path(folder).parts)
            return {"/".join(name.split("/")[:depth]): info for name, info in named.items()}
        return {n: info for n, info in named.items() if info.type == FileType.File or not deep}

    def read(self, name: str) -> bytes | None:
        """Returns the content of an object, None without the object."""
        with (
            self._opened() as (files, base),
            suppress(FileNotFoundError),
            files.open_input_file(f"{base}/{name}") as stream,
        ):
            return bytes(stream.read(stream.size()))  # else a request for each 256 KiB
        return None

    def write(self, name: str, data: bytes) -> None:
        """Creates or replaces an object."""
        with (
            self._opened() as (files, base),
            files.open_output_stream(f"{base}/{name}", **AS_IT_IS) as stream,
        ):
            stream.write(data)

    def upload(self, path: Path, name: str) -> None:
        """Creates or replaces an object with the content of a file."""
        with (
            open(path, "rb", opener=below) as file,
            self._opened() as (files, base),
            files.open_output_stream(f"{base}/{name}", **AS_IT_IS) as stream,
        ):
            # An error of this disk would store the part before it. Readers check their files.
            while data := file.read(CHUNK_BYTES):
                stream.write(data)

    def download(self, name: str, path: Path, size: int) -> None:
        """Writes an object of this size to a file, whole or not at all. Raises StorageError."""
        make_folder(path.parent)
        with whole_file(path) as file, self._opened() as (files, base):
            with files.open_input_stream(f"{base}/{name}", **AS_IT_IS) as stream:
                while data := stream.read(CHUNK_BYTES):
                    file.write(data)
            if file.tell() != size:
                raise StorageError(
                    f"{self.url}/{name} has {file.tell()} bytes instead of {size}; try again, "
                    "because another process may be writing it"
                )

    def delete(self, names: Iterable[str]) -> None:
        """Removes objects, also some that do not exist."""
        for name in names:
            with self._opened() as (files, base), suppress(FileNotFoundError):
                files.delete_file(f"{base}/{name}")

    def remove(self, folder: str = "") -> None:
        """Removes all objects below a folder, in a few requests."""
        with self._opened() as (files, base), suppress(FileNotFoundError):
            files.delete_dir(f"{base}/{folder}".rstrip("/"))

    def fetch(self, wanted: dict[str, tuple[Path, int]]) -> None:
        """Downloads objects to paths, given their sizes. Several at a time."""
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            tasks = [pool.submit(self.download, n, *place) for n, place in wanted.items()]
            try:
                for task in tasks:
                    task.result()
            finally:
                pool.shutdown(cancel_futures=True)


_keys: dict[str, str] = {}


def keep_keys(keys: dict[str, str]) -> None:
    """Keeps keys of S3, named as S3FileSystem's parameters, while the environment has none."""
    global _keys
    _keys = keys
    _open.cache_clear()


@cache
def _open(bucket: str) -> "FileSystem":
    """Returns the store of a bucket, with short limits of each request if it is S3.

    By default a request of pyarrow to S3 may take 100 s, and a process waits for it at its end.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem

    from mtcon_ray.data.remote import open_store

    files, _ = open_store(bucket, "storage.root")
    if not isinstance(files, S3FileSystem):
        return files
    # Only a URL gives the variables' endpoint, and only the constructor takes limits.
    _, (found,) = files.__reduce__()
    return S3FileSystem(
        region=files.region,
        scheme=found["scheme"],
        endpoint_override=found["endpoint_override"] or None,
        connect_timeout=3,
        request_timeout=4,
        allow_delayed_open=True,  # a single request for a small object, not three
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=2),
        **_keys,
    )
