"""Opening of files from a user or a stranger, which may be pipes or devices."""

import errno
import os
import stat
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from zipfile import ZIP_STORED, BadZipFile, ZipFile


def open_regular(
    path: Path | str, most: int | None = None, *, opener: Callable[[str, int], int] | None = None
) -> BufferedReader:
    """Returns a regular file, opened for reading bytes. `most` bounds its size in bytes.

    Refuses a directory, a pipe, a socket and a device. A pipe blocks until a process writes to it,
    and /dev/zero never ends. Follows a symbolic link.

    Raises OSError with the reason in `strerror`.
    """
    # O_NONBLOCK, because already the opening of a pipe blocks. It has no effect on regular files.
    descriptor = (opener or os.open)(str(path), os.O_RDONLY | os.O_NONBLOCK)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and (most is None or found.st_size <= most):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    size = f"it has {found.st_size:,} bytes, and at most {most:,} are read"
    raise OSError(errno.EFBIG, size, str(path))


def check_stored(file: ZipFile) -> None:
    """Raises BadZipFile if a part is compressed, because it may unpack to any size."""
    if any(part.compress_type != ZIP_STORED for part in file.infolist()):
        raise BadZipFile("it has compressed parts, which may unpack to any size")
