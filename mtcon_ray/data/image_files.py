"""Access to image files by name in a folder. Names leading outside the folder are refused."""

import errno
import hashlib
import os
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from io import BufferedReader
from pathlib import Path
from unicodedata import normalize

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.data.image_names import is_hidden, is_image
from mtcon_ray.errors import DISK_ERRORS, DataError, ResourceError

# Decoded images have at most 89 million pixels, which take 358 MB without compression.
MAX_IMAGE_BYTES = 2**29
# Errors of a disk, or of too many open files. They say nothing about the file.
PASSING_ERRORS = DISK_ERRORS | {errno.EMFILE, errno.ENFILE}


class UnreadableImageError(Exception):
    """A missing or corrupt image. The message is the reason."""


def grouped(names: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    """Returns the names by their keys, in their order."""
    found = defaultdict[str, list[str]](list)
    for name in names:
        found[key(name)].append(name)
    return found


def leads_outside(name: str) -> bool:
    """Returns True for an absolute name, or a name with a part `..` or a null byte."""
    return name.startswith("/") or ".." in name.split("/") or "\0" in name


def shortest(name: str) -> str:
    """Returns a relative name without empty parts, `.`, and `..` after another part.

    Absolute names and names leading outside are returned unchanged.
    """
    normal = posixpath.normpath(name)
    return name if leads_outside(normal) else normal


def check_utf_8(name: str, root: Path) -> str:
    """Returns a name of a file. Raises DataError if no spec or table can hold it."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(
            f"files in {root} must have names in UTF-8, got {os.fsencode(name)!r}; rename them, "
            "for example with the program convmv"
        ) from None
    return name


class ImageFiles:
    """The files of one folder or archive, named by relative paths with forward slashes.

    The base class stands for files not downloaded yet: any name may exist, and no file can be
    listed or read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_outside(self, names: Sequence[str]) -> int | None:
        """Returns the index of the first name leading outside the folder or archive, or None."""
        return next((index for index, name in enumerate(names) if leads_outside(name)), None)

    def relative(self, names: Sequence[str]) -> list[str]:
        """Returns each name relative to the root, without `.` and `..`.

        The Unicode form is the file's. Names leading outside are returned unchanged.
        """
        return [shortest(name) for name in names]

    def find_absent(self, names: Sequence[str]) -> list[int]:
        """Returns the indices of names without a regular file, ascending."""
        return [index for index, name in enumerate(names) if not self.exists(name)]

    def exists(self, name: str) -> bool:
        """Returns True if a regular file has this name, or if files are not downloaded yet."""
        return True

    def names(self, *, whole: bool = True) -> Iterator[str]:
        """Yields the names of all files. Raises DataError for a name outside of UTF-8.

        With `whole` it also raises DataError for a folder that cannot be listed and for a link to a
        folder, because files would be missing from the list. Such folders and links are skipped if
        they are hidden. Files not downloaded yet have no known names.
        """
        return iter(())

    def signature(self, names: Sequence[str]) -> str | None:
        """Returns a hex digest of names, sizes and time stamps, without reading contents."""
        return None

    def digest(self, names: Sequence[str]) -> str:
        """Returns a hex digest of names and contents. A missing file counts as absent."""
        raise NotImplementedError

    def read(self, name: str) -> bytes:
        """Returns the content of a file. Safe in several threads.

        Raises UnreadableImageError if the file is missing, too large or cannot be read.
        """
        raise NotImplementedError


class ImageFolder(ImageFiles):
    """A folder on disk. Symbolic links must lead to places inside it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        # Each folder once: more calls would be round trips on a network file system.
        self._resolved = cache(os.path.realpath)

    def _below(self, name: str) -> str | None:
        """Returns a name without links in it, None if it leads outside the folder."""
        root = os.path.join(self._resolved(self.root), "")
        path = os.path.join(root, name)
        place = path if os.path.islink(path) else os.path.dirname(path)
        real = self._resolved(place) + path.removeprefix(place)
        inside = os.path.join(real, "").startswith(root)
        return real.removeprefix(root).lstrip("/") if inside else None

    def find_outside(self, names: Sequence[str]) -> int | None:
        listed = cache(self._list)
        plain = cache(lambda folder: self._below(folder) is not None)

        def is_outside(name: str) -> bool:
            folder, _, file = name.rpartition("/")
            if leads_outside(name) or not plain(folder):
                return True
            return not listed(folder).get(file, False) and self._below(name) is None

        return next((i for i, name in enumerate(names) if is_outside(name)), None)

    def find_absent(self, names: Sequence[str]) -> list[int]:
        listed = cache(self._list)

        def is_there(name: str) -> bool:
            folder, _, file = name.rpartition("/")
            # Some file systems accept a name in another form than they list.
            return listed(folder).get(file, False) or self.exists(name)

        return [index for index, name in enumerate(names) if not is_there(name)]

    def _list(self, folder: str) -> dict[str, bool]:
        """Returns the entries of a folder, True for regular files. Much faster than asking each."""
        with suppress(OSError), os.scandir(self.root / folder) as entries:
            return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        return {}

    def relative(self, names: Sequence[str]) -> list[str]:
        def below(name: str) -> str:
            if "\0" in name or not (name.startswith("/") or ".." in name.split("/")):
                return shortest(name)
            # A symbolic link, or "..", may lead into the root from elsewhere.
            return self._below(name) or name

        return self._as_spelled([below(name) for name in names])

    def _as_spelled(self, names: Sequence[str]) -> list[str]:
        """Returns the names in the Unicode form of their files, unless several files match.

        Archives made on macOS have other forms than the tables describing them.
        """

        @cache
        def listed(folder: str) -> dict[str, list[str]]:
            with suppress(OSError):
                return grouped(os.listdir(self.root / folder), partial(normalize, "NFC"))
            return {}

        def spelled(name: str) -> str:
            path = ""
            for part in name.split("/"):
                there = listed(path).get(normalize("NFC", part), [])
                # Some file systems accept a name but list it in another form.
                alone = len(there) == 1 and not os.path.lexists(self.root / path / part)
                path = posixpath.join(path, there[0] if alone else part)
            return path

        # Only names beyond ASCII have several forms, so few folders are listed here.
        return [n if n.isascii() or leads_outside(n) else spelled(n) for n in names]

    def exists(self, name: str) -> bool:
        return not leads_outside(name) and os.path.isfile(self.root / name)

    def names(self, *, whole: bool = True) -> Iterator[str]:
        folders = [""]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(self.root / folder) as found:
                    entries = list(found)
            except OSError as error:
                if whole and not is_hidden(folder):
                    raise DataError(
                        f"cannot list the folder {self.root / folder}: {error.strerror}; make it "
                        "readable, or move it away"
                    ) from None
                continue
            for entry in entries:
                name = posixpath.join(folder, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif not entry.is_symlink() or entry.is_file() or is_image(name):
                    yield check_utf_8(name, self.root)
                elif whole and not is_hidden(name):
                    raise DataError(
                        f"{self.root} must hold folders, not links to folders, got {name!r}, a "
                        f"link to {os.readlink(entry.path)!r}; put the folder itself there "
                        "(`cp -rL` copies it), or remove the link"
                    )

    def signature(self, names: Sequence[str]) -> str:
        total, root = hashlib.sha256(os.path.realpath(self.root).encode()), f"{self.root}/"
        for name in names:
            stamps = "absent"
            with suppress(OSError):
                found = os.stat(root + name)
                stamps = f"{found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
            total.update(f"{name}\0{stamps}\0".encode())
        return total.hexdigest()

    def digest(self, names: Sequence[str]) -> str:
        total = hashlib.sha256()
        with ThreadPoolExecutor(8) as pool:
            for name, part in zip(names, pool.map(self._digest_one, names), strict=True):
                total.update(f"{name}\0{part}\0".encode())
        return total.hexdigest()

    def _digest_one(self, name: str) -> str:
        with suppress(UnreadableImageError), self._open(name) as file:
            # In pieces: a file of many images may be larger than the memory.
            return hashlib.file_digest(file, "sha256").hexdigest()
        return "absent"

    def read(self, name: str) -> bytes:
        with self._open(name, MAX_IMAGE_BYTES) as file:
            return file.read()

    @contextmanager
    def _open(self, name: str, most: int | None = None) -> Iterator[BufferedReader]:
        """Yields a regular file. Raises UnreadableImageError, also if reading it fails.

        `most` bounds its size in bytes, because a sparse file has any size on a small disk. Raises
        ResourceError if the file may be readable another time.
        """
        try:
            with open_regular(self.root / name, most) as file:
                yield file
        except FileNotFoundError:
            raise UnreadableImageError("no such file") from None
        except OSError as error:
            if error.errno in PASSING_ERRORS:
                raise ResourceError(
                    f"cannot read the image {self.root / name}: {error.strerror}; repeat the "
                    "command when the images can be read"
                ) from error
            raise UnreadableImageError(error.strerror or str(error)) from None
