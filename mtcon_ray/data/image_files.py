"""Image files by name, from a folder or a tar: their bytes, their digests, nothing outside."""

import errno
import gzip
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
import time
import warnings
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader, BytesIO
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO

import numpy as np
from PIL import Image, UnidentifiedImageError

from mtcon_ray.errors import DataError, ResourceError

ARCHIVES = (".tar", ".tar.gz", ".tgz")
EIGHT_BIT = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "HSV"}
# Others are rare as photographs, and one of Pillow's readers starts a program (Ghostscript).
FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "GIF", "BMP", "TIFF", "PPM", "JPEG2000")
# A small file can hold an image that fills the memory: above 89 million pixels it is refused.
warnings.simplefilter("error", Image.DecompressionBombWarning)
SETTLED_SECONDS = 2  # a file changed again within one clock tick would keep its time stamp


class UnreadableImageError(Exception):
    """One image that is missing or corrupt; the message is the reason."""


class ImageFiles(ABC):
    """Files of one folder or archive, named by relative paths with forward slashes."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_outside(self, names: Sequence[str]) -> int | None:
        """Index of the first name that leads outside the folder or archive, if any."""
        for index, name in enumerate(names):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or "\0" in name:
                return index
        return None

    @abstractmethod
    def signature(self, names: Sequence[str]) -> str | None:
        """Hex digest of names, sizes and time stamps; None while a file has just changed."""

    @abstractmethod
    def digest(self, names: Sequence[str]) -> str:
        """Hex digest of the contents; a missing file counts as such."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Content of one file; safe to call from several threads. Raises UnreadableImageError."""


class ImageFolder(ImageFiles):
    """A folder on disk; a symbolic link must end inside it."""

    def find_outside(self, names: Sequence[str]) -> int | None:
        index = super().find_outside(names)
        if index is not None:
            return index
        real_root = os.path.realpath(self.root)
        inside: dict[str, bool] = {}
        for index, name in enumerate(names):
            path = os.path.join(real_root, name)
            place = path if os.path.islink(path) else os.path.dirname(path)
            if place not in inside:
                real = os.path.realpath(place)
                inside[place] = os.path.commonpath([real, real_root]) == real_root
            if not inside[place]:
                return index
        return None

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
                return hashlib.file_digest(file, "sha256").hexdigest()
        except (OSError, UnreadableImageError):
            return "absent"

    def read(self, name: str) -> bytes:
        try:
            with self._open(name) as file:
                return file.read()
        except FileNotFoundError:
            raise UnreadableImageError("no such file") from None
        except OSError as error:
            raise UnreadableImageError(error.strerror or str(error)) from None

    @contextmanager
    def _open(self, name: str) -> Iterator[BufferedReader]:
        """The file, if it is a plain one: a pipe would be waited for, a device never ends."""
        with open(os.open(self.root / name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableImageError("no plain file")
            yield file


class ImageArchive(ImageFiles):
    """A tar, plain or gzipped, read by member name and never unpacked to named files."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._opening = Lock()

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
        if str(PurePosixPath(name)) not in members:
            raise UnreadableImageError("no plain file of this name in the archive")
        start, size = members[str(PurePosixPath(name))]
        data = os.pread(descriptor, size, start)
        if len(data) < size:
            raise UnreadableImageError("the archive ends within this file")
        return data

    @cached_property
    def _index(self) -> tuple[int, dict[str, tuple[int, int]]]:
        """A descriptor of the unzipped tar, and where in it each plain file lies."""
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
        # tarfile raises the last two on headers made to deceive it.
        except (tarfile.TarError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise DataError(f"data.images must be a whole tar, got {self.root}: {error}") from None
        weakref.finalize(self, os.close, descriptor)
        places = {str(PurePosixPath(m.name)): (m.offset_data, m.size) for m in plain}
        return descriptor, places

    @contextmanager
    def _unzipped(self) -> Iterator[IO[bytes]]:
        """The tar itself, or its unzipped copy in a file without a name: gzip cannot seek."""
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
    """The folder or archive at a path. Raises DataError if there is neither."""
    if root.is_dir():
        return ImageFolder(root)
    if not root.is_file():
        raise DataError(f"data.images must be a folder or a tar, got {root}, which does not exist")
    if not root.name.endswith(ARCHIVES):
        raise DataError(f"data.images must be a folder or end in {', '.join(ARCHIVES)}, got {root}")
    return ImageArchive(root)


def decode_image(data: bytes, size: int) -> np.ndarray:
    """One image, uint8 [size, size, 3], aspect squashed, antialiased, transparency on white.

    Raises UnreadableImageError, also for more than 8 bits a channel, which Pillow would clip.
    """
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            if image.mode not in EIGHT_BIT:
                raise UnreadableImageError(f"mode {image.mode} must be 8 bits a channel")
            image.draft("RGB", (2 * size, 2 * size))
            whole = _on_white(image)
            # In two calls: which way comes first, and so some rounding, is Pillow's to change.
            wide = whole.resize((size, whole.height), Image.Resampling.BILINEAR)
            return np.asarray(wide.resize((size, size), Image.Resampling.BILINEAR))
    except UnreadableImageError:
        raise
    except UnidentifiedImageError:
        raise UnreadableImageError("not an image" if data else "empty file") from None
    except Exception as error:  # Pillow's decoders raise almost anything on corrupt bytes
        raise UnreadableImageError(str(error) or type(error).__name__) from None


def _on_white(image: Image.Image) -> Image.Image:
    if not image.has_transparency_data:
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, "white")
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _is_settled(latest_ns: int) -> bool:
    return time.time_ns() - latest_ns > SETTLED_SECONDS * 10**9
