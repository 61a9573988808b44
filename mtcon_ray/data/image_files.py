"""Access to image files by name, in a folder or a tar; names that lead outside are refused."""

import errno
import gzip
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from io import BufferedReader
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO

from mtcon_ray.errors import DISK_ERRORS, DataError, ResourceError

ARCHIVES = (".tar", ".tar.gz", ".tgz")
# Of files that are images, where a folder is searched for them.
IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
# Of a disk, or of too many open files: they say nothing about the file.
PASSING_ERRORS = DISK_ERRORS | {errno.EMFILE, errno.ENFILE}
# A file that changed this recently can change again without a new time stamp, because file systems
# record modification times in clock ticks (of 2 seconds on FAT).
SETTLED_SECONDS = 2


class UnreadableImageError(Exception):
    """An image that is missing or corrupt; the message is the reason."""


def leads_outside(name: str) -> bool:
    """Returns True for a name that is absolute, has `..` as a part, or contains a null byte."""
    # By hand: with PurePosixPath the names of 200,000 images took a second longer.
    return name.startswith("/") or ".." in name.split("/") or "\0" in name


def _refuse_bytes(name: str, root: Path) -> None:
    """Raises DataError for a name that is not UTF-8: no spec or table can hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"files in {root} must have names in UTF-8, got {os.fsencode(name)!r}; rename them, as "
            "the program convmv does"
        ) from None


class ImageFiles:
    """The files of one folder or archive, named by relative paths with forward slashes.

    The base class stands for files that are not downloaded yet: any name may exist, and no file
    can be listed or read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_outside(self, names: Sequence[str]) -> int | None:
        """Returns the index of the first name that leads outside the folder or archive, or None."""
        return next((index for index, name in enumerate(names) if leads_outside(name)), None)

    def relative(self, names: Sequence[str]) -> list[str]:
        """Returns the names, where absolute paths below the root are made relative to it."""
        return list(names)

    def find_absent(self, names: Sequence[str]) -> list[int]:
        """Returns the indices of names that are not regular files, ascending."""
        return [index for index, name in enumerate(names) if not self.exists(name)]

    def exists(self, name: str) -> bool:
        """Returns True if a regular file has this name, or if that cannot be known yet."""
        return True

    def names(self) -> Iterator[str]:
        """Yields the names of all files. Raises DataError for a name that is not UTF-8."""
        raise NotImplementedError

    def signature(self, names: Sequence[str]) -> str | None:
        """Returns a hex digest of names, sizes and time stamps, without reading contents.

        None if a file changed less than SETTLED_SECONDS ago.
        """
        return None

    def digest(self, names: Sequence[str]) -> str:
        """Returns a hex digest of names and contents; a missing file counts as absent."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """Returns the content of one file. Safe to call from several threads.

        Raises UnreadableImageError if the file is missing or cannot be read.
        """
        raise NotImplementedError


def _cached_realpath() -> Callable[[str], str]:
    """Returns a `realpath` that resolves each directory once, and each link.

    Without the cache each call would be a round trip on a network file system.
    """
    resolved: Callable[[str], str] = cache(os.path.realpath)

    def real(path: str) -> str:
        place = path if os.path.islink(path) else os.path.dirname(path)
        return resolved(place) + path.removeprefix(place)

    return real


class ImageFolder(ImageFiles):
    """A folder on disk; symbolic links must lead to places inside it."""

    def find_outside(self, names: Sequence[str]) -> int | None:
        real_root, real = os.path.join(os.path.realpath(self.root), ""), _cached_realpath()
        for index, name in enumerate(names):
            if leads_outside(name):
                return index
            if not os.path.join(real(os.path.join(real_root, name)), "").startswith(real_root):
                return index
        return None

    def relative(self, names: Sequence[str]) -> list[str]:
        real_root, real = os.path.join(os.path.realpath(self.root), ""), _cached_realpath()

        def below(name: str) -> str:
            if not os.path.isabs(name) or "\0" in name:
                return name
            # A symbolic link, or "..", may lead into the root from elsewhere.
            path = real(name)
            return path.removeprefix(real_root).lstrip("/") if path.startswith(real_root) else name

        return [below(name) for name in names]

    def find_absent(self, names: Sequence[str]) -> list[int]:
        # List each folder once: on network file systems one call per file takes minutes.
        @cache
        def listed(folder: str) -> set[str]:
            with suppress(OSError), os.scandir(self.root / folder) as entries:
                return {entry.name for entry in entries if entry.is_file()}
            return set()  # the folder is absent or must not be read

        def is_there(name: str) -> bool:
            folder, _, file = name.rpartition("/")
            # Ask again for each: a file system may accept a name that it lists differently, as
            # those that ignore letter case or normalise Unicode do.
            return file in listed(folder) or self.exists(name)

        return [index for index, name in enumerate(names) if not is_there(name)]

    def exists(self, name: str) -> bool:
        return not leads_outside(name) and os.path.isfile(self.root / name)

    def names(self) -> Iterator[str]:
        for folder, _, files in os.walk(self.root):
            for file in files:
                name = os.path.relpath(os.path.join(folder, file), self.root)
                _refuse_bytes(name, self.root)
                yield name

    def signature(self, names: Sequence[str]) -> str | None:
        total = hashlib.sha256(os.path.realpath(self.root).encode())
        latest = 0
        for name in names:
            try:
                found = os.stat(self.root / name)
            except OSError:
                total.update(f"{name}\0absent\0".encode())
                continue
            latest = max(latest, found.st_mtime_ns, found.st_ctime_ns)
            stamps = f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
            total.update(f"{name}\0{stamps}\0".encode())
        return total.hexdigest() if _is_settled(latest) else None

    def digest(self, names: Sequence[str]) -> str:
        total = hashlib.sha256()
        with ThreadPoolExecutor(8) as pool:
            for name, part in zip(names, pool.map(self._digest_one, names), strict=True):
                total.update(f"{name}\0{part}\0".encode())
        return total.hexdigest()

    def _digest_one(self, name: str) -> str:
        try:
            with self._open(name) as file:
                # In pieces: a file of many images may be larger than the memory.
                return hashlib.file_digest(file, "sha256").hexdigest()
        except UnreadableImageError:
            return "absent"

    def read(self, name: str) -> bytes:
        with self._open(name) as file:
            return file.read()

    @contextmanager
    def _open(self, name: str) -> Iterator[BufferedReader]:
        """Yields a regular file. Raises UnreadableImageError, also if reading it fails.

        Raises ResourceError if the file may be readable another time.
        """
        try:
            # O_NONBLOCK, because opening a named pipe would otherwise block until somebody writes
            # to it; reading a device may never end.
            with open(os.open(self.root / name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise UnreadableImageError("no plain file")
                yield file
        except FileNotFoundError:
            raise UnreadableImageError("no such file") from None
        except OSError as error:
            if error.errno in PASSING_ERRORS:
                raise ResourceError(
                    f"the images must be readable, got {error.strerror} for {self.root / name}; "
                    "repeat the command when they are"
                ) from error
            raise UnreadableImageError(error.strerror or str(error)) from None


class ImageArchive(ImageFiles):
    """A tar, plain or gzipped, whose members are read in place and never extracted by name."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._opening = Lock()

    def exists(self, name: str) -> bool:
        return str(PurePosixPath(name)) in self._index[1]

    def names(self) -> Iterator[str]:
        for name in self._index[1]:
            _refuse_bytes(name, self.root)
            yield name

    def signature(self, names: Sequence[str]) -> str | None:
        found = os.stat(self.root)
        stamps = [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        total = hashlib.sha256(f"{os.path.realpath(self.root)}\0{stamps}".encode())
        total.update("\0".join(names).encode())
        return total.hexdigest() if _is_settled(max(stamps[2:])) else None

    def digest(self, names: Sequence[str]) -> str:
        try:
            with open(self.root, "rb") as file:
                total = hashlib.file_digest(file, "sha256")
        except OSError as error:
            raise DataError(f"data.images must be readable, got {error}") from None
        total.update("\0".join(names).encode())
        return total.hexdigest()

    def read(self, name: str) -> bytes:
        with self._opening:
            descriptor, members = self._index
        place = members.get(str(PurePosixPath(name)))
        if place is None:
            raise UnreadableImageError("no plain file of this name in the archive")
        start, size = place
        # pread has no file position, so threads share the descriptor without a lock.
        data = os.pread(descriptor, size, start)
        if len(data) < size:
            raise UnreadableImageError("the archive ends within this file")
        return data

    @cached_property
    def _index(self) -> tuple[int, dict[str, tuple[int, int]]]:
        """File descriptor of the uncompressed tar, and (offset, bytes) of each regular file."""
        try:
            with self._unzipped() as file:
                with tarfile.open(fileobj=file, mode="r:") as tar:
                    plain = [m for m in tar if m.isreg() and not m.issparse() and m.size >= 0]
                descriptor = os.dup(file.fileno())
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise DataError(f"data.images must be readable, got {error}") from None
            raise ResourceError(
                f"{tempfile.gettempdir()} must have room for the unzipped {self.root}, got a full "
                "disk; set TMPDIR to a larger one, or give a .tar or a folder"
            ) from None
        # tarfile raises ValueError and RecursionError on maliciously crafted headers.
        except (tarfile.TarError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise DataError(f"data.images must be a whole tar, got {self.root}: {error}") from None
        weakref.finalize(self, os.close, descriptor)
        places = {str(PurePosixPath(m.name)): (m.offset_data, m.size) for m in plain}
        return descriptor, places

    @contextmanager
    def _unzipped(self) -> Iterator[IO[bytes]]:
        """Yields the tar, or an uncompressed copy in an unnamed temporary file.

        A gzip stream cannot be read at an offset without decompressing all that precedes it.
        """
        if not self.root.name.endswith("gz"):
            with open(self.root, "rb") as file:
                yield file
            return
        with tempfile.TemporaryFile() as plain:
            with gzip.open(self.root) as packed:
                shutil.copyfileobj(packed, plain, 1 << 20)
            plain.seek(0)
            yield plain


def open_files(root: Path) -> ImageFiles:
    """Returns the folder or archive at a path. Raises DataError if it is neither."""
    if root.is_dir():
        return ImageFolder(root)
    if not root.is_file():
        raise DataError(f"data.images must be a folder or a tar, got {root}, which does not exist")
    if not root.name.endswith(ARCHIVES):
        raise DataError(
            f"data.images must be a folder or end in {', '.join(ARCHIVES)}, got {root}; unpack "
            "another archive and name its folder"
        )
    return ImageArchive(root)


def _is_settled(latest_ns: int) -> bool:
    return time.time_ns() - latest_ns > SETTLED_SECONDS * 10**9
