"""Checkpoints on disk: whole or absent, and refused where they do not belong."""

import os
import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch

from mtcon_ray.errors import CheckpointError, ResourceError

FORMAT = 1
# What decides how a training goes; how it is searched, tracked or scheduled may differ.
SECTIONS = ("seed", "data", "views", "model", "method", "train")


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write tensors and plain values, so that `path` is the old file or the whole new one.

    Raises ResourceError if the folder cannot be written.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            torch.save({"format": FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except torch.AcceleratorError:
        raise  # of the device, whatever it was doing, not of the disk
    # On a full disk torch's zip writer hides the OSError in a RuntimeError.
    except (OSError, RuntimeError) as error:
        raise ResourceError(
            f"checkpoint {path} must be writable, got {error}; free disk space or choose another "
            "storage.root"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path) -> dict[str, Any]:
    """What `save` wrote, on the CPU. Runs no code from the file.

    Raises CheckpointError if it is not there, not whole, or of another format.
    """
    try:
        with ZipFile(path) as file:
            if any(part.compress_type != ZIP_STORED for part in file.infolist()):
                raise BadZipFile("compressed parts, which may unpack without end")
            damaged = file.testzip()  # torch.load does not look at the checksums
        if damaged is not None:
            raise BadZipFile(f"a wrong checksum of {damaged}")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint {path} must exist") from None
    except Exception as error:  # torch's reader raises almost anything on a file that is not ours
        reason = load_problem(error)
        raise CheckpointError(
            f"checkpoint {path} must be a whole file written by this program, got {reason}; "
            "delete it to start again"
        ) from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(f"checkpoint {path} must have format {FORMAT}, got {found!r}")
    return state


def load_problem(error: Exception) -> str:
    """Why torch refused a file, in a line, without its advice to run what the file says."""
    if isinstance(error, pickle.UnpicklingError):
        return "something else than tensors and plain values"
    return str(error).partition("\n")[0] or type(error).__name__


def check_same_training(path: Path, saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Raises CheckpointError naming every field that changes the training and differs.

    Both are whole specs as plain data, with the data's fingerprint beside the sections.
    """
    then, now = dict(_decisive(saved)), dict(_decisive(current))
    changed = [
        f"{field} was {then.get(field)!r}, is {now.get(field)!r}"
        for field in sorted(then.keys() | now.keys())
        if then.get(field) != now.get(field)
    ]
    if changed:
        raise CheckpointError(
            f"checkpoint {path} must belong to this spec and data, but {'; '.join(changed)}; "
            "restore these or train under another name"
        )


def _decisive(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "data fingerprint", spec["fingerprint"]
    yield "evaluate.every", spec["evaluate"]["every"]
    for section in SECTIONS:
        yield from _leaves(spec[section], section)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}")
    else:
        yield path, value


def _sync_folder(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
