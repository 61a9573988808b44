"""All errors caused or met by users, as a tree of classes.

    MtconError                     exit code 1: not the user's fault
    ├── UserError                  exit code 2: wrong input
    │   ├── SpecError              a field, a path of the search space, an override
    │   ├── DataError              a CSV, an image, a label column, a split
    │   ├── ResourceError          a request that no node, disk or permission can satisfy
    │   ├── SweepError             a sweep or run that exists, is missing, locked or differs
    │   └── CheckpointError        a broken checkpoint, or of another architecture
    ├── TrackingError              the tracking server does not answer
    ├── StorageError               a disk is full, read-only or broken, or has changed a file
    ├── MemoryTakenError           other processes use a training's part of a shared GPU
    ├── PreemptedError             the process of a trial has lost its driver
    └── TrialError                 ends a single trial, never the sweep
        ├── DivergedError          a gradient, a loss or an embedding is not finite
        └── OutOfMemoryError       the configuration does not fit the device

A message about a value states the rule, the value, and a solution. Any other message states what
failed, why, and a solution. Bugs of this package are `AssertionError` and keep their traceback.
"""

import errno
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Self


class MtconError(Exception):
    """Base of all errors below. `exit_code` is the exit status of a failed command."""

    exit_code = 1


class UserError(MtconError):
    """An error in the user's input, found before anything is started or written."""

    exit_code = 2


class SpecError(UserError):
    """A broken rule in a spec, an override or a search space."""


class DataError(UserError):
    """Labels or images that cannot be used as the spec says."""


class ResourceError(UserError):
    """A request that no node, disk or permission can satisfy."""


class SweepError(UserError):
    """A sweep or run with a taken or missing name, with a lock, or with a different spec."""


class CheckpointError(UserError):
    """An unreadable checkpoint, or a checkpoint of another architecture."""


class TrackingError(MtconError):
    """The tracking server does not answer."""


# Errors of a disk as opposed to a file: full, over quota, read-only, I/O error, stale NFS handle.
DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE})


class StorageError(MtconError):
    """A file under the root cannot be written, or is not as it was written."""

    @classmethod
    def of(cls, path: Path, error: BaseException) -> Self:
        """Returns an error with the path and the reason."""
        reason = getattr(error, "strerror", None) or error
        return cls(f"cannot write {path}: {reason}; free disk space or make the folder writable")


def file_error(error: BaseException) -> MtconError | None:
    """Returns the error for an unreadable or unwritable file, None for any other exception.

    An error in DISK_ERRORS becomes a StorageError. Other causes are a missing permission, a folder
    in place of a file, and a file removed meanwhile.
    """
    disk = storage_error(error)
    if disk is None and isinstance(error, OSError) and isinstance(error.filename, str):
        return MtconError(f"cannot use the file {error.filename}: {error.strerror}")
    return disk


def storage_error(error: BaseException | None) -> StorageError | None:
    """Returns the StorageError in an exception's chain of causes, or None.

    An OSError of DISK_ERRORS is converted.
    """
    while error is not None:
        if isinstance(error, StorageError):
            return error
        if isinstance(error, OSError) and error.errno in DISK_ERRORS:
            name = error.filename if isinstance(error.filename, str) else "the disk"
            return StorageError.of(Path(name), error)
        # __context__ is set if an error occurred while another error was handled.
        error = error.__cause__ or error.__context__
    return None


class MemoryTakenError(MtconError):
    """Other processes use memory from this training's part of a shared device.

    It says nothing about the configuration, so a sweep starts the trial again, as after the loss of
    its process.
    """


class PreemptedError(MtconError):
    """The process of a trial has lost its driver, and must not write any more."""


class TrialError(MtconError):
    """An error in a single trial. The sweep records the reason and continues."""


class DivergedError(TrialError):
    """A gradient or loss is not finite. Raised before a parameter changes."""


class OutOfMemoryError(TrialError):
    """The device has too little memory for this configuration."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: the closest known name, or all.

    >>> nearest("tempertaure", ["temperature", "weighting"])
    "; did you mean 'temperature'?"
    >>> nearest("x", ["b", "a"])
    '; known: a, b'
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1):
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(names)}" if names else ""
