"""The objects below a URL of an object store: the root of sweeps, or data.

Names are relative to the URL. An upload that the store does not take whole leaves no object.
pyarrow finds credentials in the environment variables and files of each store's own programs, or in
the machine's role.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.base.root_files import below, make_folder
from mtcon_ray.data.disk import whole_file
from mtcon_ray.data.image_files import leads_outside
from mtcon_ray.errors import DISK_ERRORS, MtconError, StorageError

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
DATA_ATTEMPTS = 6  # of each request for data, with growing pauses
GOOGLE_SECONDS = 30  # Google's client repeats a request for so long, by default for 15 minutes

T = TypeVar("T")
Tell = Callable[[int], None]  # called with the number of bytes of each part


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
    """The objects below a URL. Each method raises `error` if the store fails.

    Its message begins with `failure`, such as "cannot read data.csv", and has no credentials.
    """

    def __init__(
        self, url: str, failure: str = "cannot use the root", error: type[MtconError] = StorageError
    ) -> None:
        self.url, self.failure, self.error = url, failure, error

    @contextmanager
    def opened(self) -> Iterator[tuple["FileSystem", str]]:
        """Yields the store and the URL's path in it. Errors of this disk are raised unchanged."""
        try:
            # Only the bucket: an object key may contain characters with a meaning in a URI.
            bucket = "/".join(self.url.split("/")[:3])
            # A driver asks its root again by itself, and must not wait long for an answer.
            attempts = 2 if self.error is StorageError else DATA_ATTEMPTS
            yield _open(bucket, attempts), self.url.partition("://")[2]
        # Base classes of pyarrow's errors, and its error where it is built without a kind of store.
        except (OSError, ValueError, ImportError) as error:
            if getattr(error, "errno", None) in DISK_ERRORS:
                raise
            raise self.error(
                f"{self.failure} at {self.url}: {' '.join(str(error).split())[:300]}; keys come "
                "from variables and files of the store's own programs, or from the machine's role"
            ) from None

    def itself(self) -> dict[str, "FileInfo"]:
        """Returns the object at the URL itself, by the name "", if it exists."""
        with self.opened() as (files, base):
            info = files.get_file_info(base)
        return {"": info} if info.is_file else {}

    def list(self, folder: str = "", *, deep: bool = True) -> dict[str, "FileInfo"]:
        """Returns the objects below a folder by their names. With `deep=False` also its folders.

        Raises `error` for a name that leads elsewhere: a bucket may be of another author.
        """
        from pyarrow.fs import FileSelector

        with self.opened() as (files, base):
            place = f"{base}/{folder}".rstrip("/")
            # A list of gs:// has no folders.
            all_below = deep or self.url.startswith("gs:")
            select = FileSelector(place, allow_not_found=True, recursive=all_below)
            found = files.get_file_info(select)
        named = {info.path.removeprefix(base).strip("/"): info for info in found}
        if wrong := [name for name in named if leads_outside(name)]:
            raise self.error(f"{self.failure} at {self.url}: it has an object {wrong[0]!r}")
        if deep:
            return {name: info for name, info in named.items() if info.is_file}
        depth = 1 + len(Path(folder).parts)
        return {"/".join(name.split("/")[:depth]): info for name, info in named.items()}

    def read(self, name: str) -> bytes | None:
        """Returns the content of an object, None without the object."""
        with (
            self.opened() as (files, base),
            suppress(FileNotFoundError),
            files.open_input_file(f"{base}/{name}") as stream,
        ):
            return bytes(stream.read(stream.size()))  # else a request for each 256 KiB
        return None

    def write(self, name: str, data: bytes | Path) -> None:
        """Creates or replaces an object with these bytes, or with the content of a file."""
        given = BytesIO(data) if isinstance(data, bytes) else open_regular(data, opener=below)
        with (
            given as file,
            self.opened() as (files, base),
            # By default a name in .gz means compression.
            files.open_output_stream(f"{base}/{name}", compression=None) as stream,
        ):
            # An error of this disk would store the part before it. Readers check their files.
            while part := file.read(CHUNK_BYTES):
                stream.write(part)

    def download(self, name: str, path: Path, size: int, tell: Tell = lambda _: None) -> None:
        """Writes an object of this size to a file, whole or not at all.

        Calls `tell` with the number of bytes of each part.
        """
        make_folder(path.parent)
        with whole_file(path) as file, self.opened() as (files, base):
            place = f"{base}/{name}".rstrip("/")
            with files.open_input_stream(place, compression=None) as stream:
                while data := stream.read(CHUNK_BYTES):
                    tell(file.write(data))
            if file.tell() != size:
                raise self.error(
                    f"{self.failure} at {self.url}: {name or 'it'} has {file.tell()} bytes instead "
                    f"of {size}; try again, because another process may be writing it"
                )

    def delete(self, names: Iterable[str]) -> None:
        """Removes objects, also some that do not exist."""
        for name in names:
            with self.opened() as (files, base), suppress(FileNotFoundError):
                files.delete_file(f"{base}/{name}")

    def remove(self, folder: str = "") -> None:
        """Removes all objects below a folder, in a few requests."""
        with self.opened() as (files, base), suppress(FileNotFoundError):
            files.delete_dir(f"{base}/{folder}".rstrip("/"))

    def fetch(self, wanted: dict[str, tuple[Path, int]], tell: Tell = lambda _: None) -> None:
        """Downloads objects to paths, given their sizes, several at a time.

        Calls `tell` with the number of bytes of each part, in any thread.
        """
        stopping = Event()

        def check(num_bytes: int) -> None:
            if stopping.is_set():
                raise self.error(f"{self.failure} at {self.url}: the download was stopped")
            tell(num_bytes)

        with ThreadPoolExecutor(MAX_THREADS) as pool:
            tasks = [pool.submit(self.download, n, *place, check) for n, place in wanted.items()]
            try:
                for task in as_completed(tasks):
                    task.result()
            finally:  # after an error or a KeyboardInterrupt threads would otherwise download on
                stopping.set()
                pool.shutdown(cancel_futures=True)


_keys: dict[str, str] = {}


def keep_keys(keys: dict[str, str]) -> None:
    """Keeps keys of S3, named as S3FileSystem's parameters, while the environment has none."""
    global _keys
    _keys = keys
    _open.cache_clear()


@cache
def _open(bucket: str, attempts: int) -> "FileSystem":
    """Returns the store of a bucket, with short limits of each request if it is S3.

    By default a request of pyarrow to S3 may take 100 s, and a process waits for it at its end.
    """
    from pyarrow.fs import AwsStandardS3RetryStrategy, FileSystem, S3FileSystem

    options = f"?retry_limit_seconds={GOOGLE_SECONDS}" if bucket.startswith("gs:") else ""
    files, _ = FileSystem.from_uri(bucket + options)
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
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=attempts),
        **_keys,
    )
