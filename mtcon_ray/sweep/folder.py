"""A sweep's folder: its name, what a resume may change, and what stands in it from the start."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mtcon_ray.errors import SweepError, nearest
from mtcon_ray.lock import driver_lock
from mtcon_ray.places import SPEC_FILE, last_name, new_name, sweep_folder, sweeps_folder
from mtcon_ray.spec import RunSpec, dump_spec, load_spec

# What may differ when a sweep goes on: how it is run, and more trials.
FREE_ON_RESUME = (
    "resources",
    "tracking",
    "storage",
    "search.max_concurrent",
    "search.max_failures",
)


def choose_folder(root: Path, spec: RunSpec, name: str | None, resume: bool) -> Path:
    """The sweep's folder, not made yet unless it is resumed.

    Raises SweepError for a name that is taken, missing, or whose spec differs.
    """
    if name is None:
        if not resume:
            return sweep_folder(root, new_name(sweeps_folder(root), spec.name))
        name = last_name(sweeps_folder(root), spec.name)
    folder = sweep_folder(root, name)
    if not resume:
        if folder.exists():
            raise SweepError(
                f"sweep {name!r} exists already under {folder.parent}; to go on with it: "
                f"repeat the command with --name {name} --resume"
            )
        return folder
    if not (folder / SPEC_FILE).exists():
        known = [p.name for p in sweeps_folder(root).glob("*") if (p / SPEC_FILE).exists()]
        raise SweepError(f"no sweep {name!r} under {folder.parent} to resume{nearest(name, known)}")
    check_resumable(load_spec(folder / SPEC_FILE), spec)
    return folder


def check_resumable(stored: RunSpec, given: RunSpec) -> None:
    """Raises SweepError showing every field that differs and may not."""
    before, now = _flat(dump_spec(stored)), _flat(dump_spec(given))
    changed = []
    for path in sorted(before.keys() | now.keys()):
        old, new = before.get(path), now.get(path)
        if old == new or path.startswith(FREE_ON_RESUME):
            continue
        if path == "search.num_trials" and given.search.num_configurations >= (
            stored.search.num_configurations
        ):
            continue
        changed.append(f"{path}: {old!r} then, {new!r} now")
    if changed:
        raise SweepError(
            "a resumed sweep must keep its spec (search.num_trials may grow; resources and "
            "tracking may change), got other values:\n  " + "\n  ".join(changed) + "\n"
            "give the spec it was started with, or start a new sweep with another --name"
        )


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """The folder, made if new, with its one driver's lock held."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with driver_lock(folder):
        yield


def _flat(raw: Any, path: str = "") -> dict[str, Any]:
    if isinstance(raw, dict) and raw:
        flat: dict[str, Any] = {}
        for key, value in raw.items():
            flat |= _flat(value, f"{path}.{key}" if path else str(key))
        return flat
    return {path: raw}
