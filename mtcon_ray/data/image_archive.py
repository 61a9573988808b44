"""Access to image files in a tar by name, and the choice between a tar and a folder."""

import errno
import gzip
import hashlib
import os
import posixpath
import shutil
import tarfile
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO
from unicodedata import normalize

from mtcon_ray.data import image_files
from mtcon_ray.data.image_names import is_hidden, is_image
from mtcon_ray.errors import DataError, ResourceError
from mtcon_ray.spec.data.own import ARCHIVES

# A small gzip file may unpack to more than any disk has, and other programs need some of the disk.
SHARE_OF_DISK = 0.9
COPIED_BYTES = 1 << 20


class ImageArchive(image_files.ImageFiles):
    """A tar, plain or gzipped. Its members are read in place and never extracted by name."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._opening, self._opened = Lock(), ExitStack()
        weakref.finalize(self, self._opened.close)

    def exists(self, name: str) -> bool:
        return self._place(name) is not None

    def names(self, *, whole: bool = True) -> Iterator[str]:
        _, places, links = self._index
        for name in places:
            target = links.get(name, "")
            end = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if not target or places.get(end):
                yield image_files.check_utf_8(name, self.root)
            elif whole and not is_hidden(name):
                raise DataError(
                    f"{self.root} must hold folders, not links to folders, got {name!r}, a link to "
                    f"{target!r}; pack it again with `tar --dereference`, or without the link"
                )

    def signature(self, names: Sequence[str]) -> str | None:
        found = os.stat(self.root)
        stamps = [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]
        text = f"{os.path.realpath(self.root)}\0{stamps}" + "\0".join(names)
        return hashlib.sha256(text.encode()).hexdigest()

    def digest(self, names: Sequence[str]) -> str:
        try:
            with open(self.root, "rb") as file:
                total = hashlib.file_digest(file, "sha256")
        except OSError as error:
            raise DataError(f"cannot read data.images: {error}") from None
        total.update("\0".join(names).encode())
        return total.hexdigest()

    def read(self, name: str) -> bytes:
        with self._opening:
            place = self._place(name)
        if place is None:
            raise image_files.UnreadableImageError("no plain file of this name in the archive")
        start, size = place
        if size > image_files.MAX_IMAGE_BYTES:
            raise image_files.UnreadableImageError(f"it has {size:,} bytes, too many for an image")
        # pread has no file position, so threads share the descriptor without a lock.
        data = os.pread(self._index[0], size, start)
        if len(data) < size:
            raise image_files.UnreadableImageError("the archive ends within this file")
        return data

    def _place(self, name: str) -> tuple[int, int] | None:
        """Returns the offset and the size of a regular file in bytes, None without such a file.

        A name in another Unicode form is accepted, because archives made on macOS have other names
        than the tables describing them.
        """
        name, places = str(PurePosixPath(name)), self._index[1]
        if name in places or name.isascii():
            return places.get(name)
        same = self._by_composed_name.get(normalize("NFC", name), [])
        return places[same[0]] if len(same) == 1 else None

    @cached_property
    def _by_composed_name(self) -> dict[str, list[str]]:
        return image_files.grouped(self._index[1], partial(normalize, "NFC"))

    @cached_property
    def _index(self) -> tuple[int, dict[str, tuple[int, int] | None], dict[str, str]]:
        """File descriptor of the uncompressed tar, and what `_members` returns."""
        try:
            file = self._opened.enter_context(self._unzipped())
            return file.fileno(), *_members(file)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise DataError(f"cannot read data.images: {error}") from None
            raise ResourceError(
                f"cannot unzip {self.root}: the disk of {tempfile.gettempdir()} is full; set "
                "TMPDIR to a folder on a larger disk, or give a .tar or a folder"
            ) from None
        # tarfile raises ValueError and RecursionError on maliciously crafted headers.
        except (tarfile.TarError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise DataError(f"data.images {self.root} is not a whole tar: {error}") from None

    @contextmanager
    def _unzipped(self) -> Iterator[IO[bytes]]:
        """Yields the tar, or an uncompressed copy in an unnamed temporary file.

        A gzip stream cannot be read at an offset without decompressing everything before it.
        """
        if not self.root.name.endswith("gz"):
            with open(self.root, "rb") as file:
                yield file
            return
        room = int(SHARE_OF_DISK * shutil.disk_usage(tempfile.gettempdir()).free)
        with tempfile.TemporaryFile() as plain, gzip.open(self.root) as packed:
            while piece := packed.read(COPIED_BYTES):
                room -= plain.write(piece)
                if room < 0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            plain.seek(0)
            yield plain


def _members(file: IO[bytes]) -> tuple[dict[str, tuple[int, int] | None], dict[str, str]]:
    """Returns the offset and the size in bytes of each regular file, by name.

    A hard link has the offset and the size of its target, an earlier member. Other members except
    folders have None. The second result has the targets of links that may stand for a folder.
    """
    places: dict[str, tuple[int, int] | None] = {}
    links = {}
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            name, place = str(PurePosixPath(member.name)), None
            if member.isreg() and not member.issparse() and member.size >= 0:
                place = member.offset_data, member.size
            elif member.islnk():
                place = places.get(str(PurePosixPath(member.linkname)))
            elif member.issym() and not is_image(name):
                links[name] = member.linkname
            if not member.isdir():
                places[name] = place
    return places, links


def open_files(root: Path) -> image_files.ImageFiles:
    """Returns the folder or archive at a path. Raises DataError if it is neither."""
    if root.is_dir():
        return image_files.ImageFolder(root)
    if not root.is_file():
        raise DataError(f"data.images not found: {root} does not exist; give a folder or a tar")
    if not root.name.endswith(ARCHIVES):
        raise DataError(
            f"data.images must be a folder or end in {', '.join(ARCHIVES)}, got {root}; unpack "
            "another archive and name its folder"
        )
    return ImageArchive(root)
