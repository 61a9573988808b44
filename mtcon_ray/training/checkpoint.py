"""Checkpoints on disk: written atomically, and refused for another spec or other data.

<folder>/model.pt           the network behind the reported validation value and test accuracies
<folder>/last.pt            the resume state of an interrupted training, removed at the end
<folder>/last.previous.pt   the resume state of the checkpoint before
<folder>/removed.txt        the reason why the networks of a trial were removed

`evaluation/predictions.py` writes the predictions for the test accuracies to the same folder. With
a root in an object store, `training/uploads.py` has the names of the objects.
"""

import json
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile, ZipFile

import torch

from mtcon_ray.base import root_files
from mtcon_ray.base.paths import LAST_FILE, MODEL_FILE, PREVIOUS_FILE, REMOVED_FILE, stored_url
from mtcon_ray.base.regular_file import check_stored
from mtcon_ray.data.disk import Check, whole_file
from mtcon_ray.data.objects import Objects, patiently
from mtcon_ray.errors import CheckpointError, StorageError
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.training import uploads

FORMAT = 1
# Sections that determine the training.
SECTIONS = ("seed", "data", "views", "model", "method", "train")
DECISIVE = (*SECTIONS, "evaluate.every", "evaluate.select")  # beginnings of fields


def make_folder(folder: Path) -> None:
    """Creates the folder of a training, unless it exists. Raises StorageError."""
    try:
        root_files.make_folder(folder)
    except OSError as error:
        raise StorageError.of(folder, error) from error


def save(
    path: Path, state: dict[str, Any], *, previous: Path | None = None, check: Check = lambda: None
) -> None:
    """Writes tensors and plain values atomically: `path` is the old file or the whole new file.

    If `previous` is given, the old file is renamed to it. A kill between the two renames leaves
    only `previous`, and `load_newest` then takes that file. For `check` see `whole_file`.
    Raises StorageError if the folder cannot be written.
    """
    with whole_file(path, previous=previous, check=check) as file:
        try:
            torch.save({"format": FORMAT, **state}, file)
        except torch.AcceleratorError:
            raise  # an error of the device, not of the disk
        # On a full disk torch's zip writer hides the OSError in a RuntimeError.
        except RuntimeError as error:
            raise StorageError.of(path, error) from error


def load(path: Path) -> dict[str, Any]:
    """Returns what `save` wrote, on the CPU. Runs no code from the file.

    Raises CheckpointError if it is not there, not whole, or of another format, and SweepError if it
    is a link out of the folder of its sweep.
    """
    root_files.check_own(path)
    try:
        with ZipFile(path) as file:
            check_stored(file)
            # torch.load does not look at the checksums.
            if (damaged := file.testzip()) is not None:
                raise BadZipFile(f"the checksum of {damaged} is wrong")
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        removed, problem = path.parent / REMOVED_FILE, "does not exist"
        if removed.exists():
            reason = root_files.read_small(removed).decode(errors="replace").strip()
            problem = f"was removed by {reason}; the scores of its trial are kept"
        raise CheckpointError(f"checkpoint {path} {problem}") from None
    except Exception as error:  # torch's reader raises errors of many types on foreign files
        raise CheckpointError(
            f"checkpoint {path} is not a whole file written by this program: {_problem(error)}"
        ) from None
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        found = state.get("format") if isinstance(state, dict) else type(state).__name__
        raise CheckpointError(f"checkpoint {path} must have format {FORMAT}, got {found!r}")
    return state


def spec_in(path: Path, state: Mapping[str, Any]) -> RunSpec:
    """Returns the spec in a checkpoint's content. Raises CheckpointError and SpecError."""
    with reading(path):
        return parse_spec(json.loads(state["spec"]), where=str(path))


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises CheckpointError if a value of a checkpoint is absent or of another kind."""
    try:
        yield
    except (torch.AcceleratorError, torch.OutOfMemoryError):
        raise  # errors of the device, not of the file
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise CheckpointError(f"{path} is no checkpoint of mtcon-ray: {_problem(error)}") from None


def _problem(error: Exception) -> str:
    """Returns torch's reason in one line, without its advice to load the file unsafely."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds something other than tensors and plain values"
    if isinstance(error, KeyError):
        return f"it lacks {error}"
    return str(error).partition("\n")[0] or type(error).__name__


class Resumed(NamedTuple):
    """The newest whole resume state of a training, and the damage of newer states.

    `state` and `path` are None if the training starts from scratch. `damage` is None if nothing
    was lost.
    """

    state: dict[str, Any] | None
    path: Path | None
    damage: str | None


def load_newest(folder: Path, *, with_model: bool = False) -> Resumed:
    """Returns the newer of a training's two resume states, or the older if it cannot be read.

    `with_model` requires a readable file of the best network so far, if one was written. If this
    network is newer than the state, its epoch and value become the best epoch and value of the
    state, because the previous best network has been overwritten.
    """
    damaged: list[str] = []
    for path in (folder / LAST_FILE, folder / PREVIOUS_FILE):
        if not path.exists():
            continue
        try:
            state = load(path)
            if with_model and state.get("best") is not None:
                kept = load(folder / MODEL_FILE)
                with reading(folder / MODEL_FILE):
                    epoch, value = int(kept["epoch"]), float(kept["value"])
                with reading(path):
                    if epoch > state.get("best_epoch", 0):
                        state |= {"best": value, "best_epoch": epoch}
            return Resumed(state, path, "; ".join(damaged) or None)
        except CheckpointError as error:
            damaged.append(str(error))
    return Resumed(None, None, "; ".join(dict.fromkeys(damaged)) or None)


def discard_resume_state(folder: Path) -> None:
    """Removes the files needed only by an unfinished training. Raises StorageError."""
    _remove(folder / name for name in (LAST_FILE, PREVIOUS_FILE))
    if url := stored_url(folder):
        uploads.discard_objects(url, [LAST_FILE])


def discard_other_training(folder: Path, spec: RunSpec) -> None:
    """Removes the resume state of another training. Raises StorageError."""
    state, path, _ = load_newest(folder)
    if state is not None and path is not None and _changed(path, state, spec):
        discard_resume_state(folder)


def discard_network(folder: Path, reason: str) -> None:
    """Removes all networks of an ended training. `load` then names the reason.

    The predictions stay. Raises StorageError.
    """
    if url := stored_url(folder):
        patiently(lambda: Objects(url).write(REMOVED_FILE, f"{reason}\n".encode()))
        uploads.discard_objects(url, uploads.NETWORKS)
    if found := [folder / name for name in uploads.NETWORKS if (folder / name).exists()]:
        # First: a kill in between must leave no folder without both network and reason.
        with whole_file(folder / REMOVED_FILE) as file:
            file.write(f"{reason}\n".encode())
        _remove(found)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        try:
            root_files.remove(path)
        except OSError as error:
            raise StorageError.of(path, error) from error


def _changed(path: Path, state: Mapping[str, Any], spec: RunSpec) -> list[str]:
    """Returns the fields that determine the training and differ from the checkpoint's."""
    found = differences(dump_spec(spec_in(path, state)), dump_spec(spec))
    return [f"{at} was {then!r}, is {now!r}" for at, then, now in found if at.startswith(DECISIVE)]


def check_same_training(path: Path, state: dict[str, Any], spec: RunSpec, fingerprint: str) -> None:
    """Raises CheckpointError naming every field that determines the training and differs.

    `state` is the content of a checkpoint, `fingerprint` is that of the data.
    """
    changed = _changed(path, state, spec)
    if (saved := state.get("fingerprint")) != fingerprint:
        changed.append(f"data fingerprint was {saved!r}, is {fingerprint!r}")
    if changed:
        raise CheckpointError(
            f"checkpoint {path} belongs to another spec or other data: {'; '.join(changed)}; "
            "restore these or train under another name"
        )


def differences(before: dict[str, Any], after: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yields dotted path and both values of each differing field, sorted. Missing is None."""
    then, now = dict(_leaves(before)), dict(_leaves(after))
    for path in sorted(then.keys() | now.keys()):
        if then.get(path) != now.get(path):
            yield path, then.get(path), now.get(path)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else key)
    else:
        yield path, value
