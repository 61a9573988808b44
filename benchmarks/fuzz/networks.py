"""Damaged checkpoints and predictions: bytes, malicious pickles, and other values."""

import os
import pickle
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
import torch

from benchmarks.fuzz.base import CUT, SWEEP, WHOLE
from benchmarks.fuzz.damage import damage_file, damage_tree, odd_value, places, shown

FILES = tuple(
    f"{name}/checkpoints/trial-0000/{file}"
    for name, file in (
        (WHOLE, "model.pt"), (CUT, "model.pt"), (CUT, "last.pt"), (CUT, "last.previous.pt"),
        (WHOLE, "predictions.npz"), (SWEEP, "model.pt"), (SWEEP, "predictions.npz"),
    )
)  # fmt: skip


class Malicious:
    """A value with a pickle that makes the marker folder when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.marker),)


def damage_network(folder: Path, rng: Random, marker: Path) -> str:
    """Damages a checkpoint or a file of predictions, or two files in a fifth of the cases."""
    chosen = rng.sample(FILES, 1 if rng.random() < 0.8 else 2)
    return "; ".join(_damage(folder / "root" / "sweeps" / name, rng, marker) for name in chosen)


def _damage(path: Path, rng: Random, marker: Path) -> str:
    where = f"{path.parent.name}/"
    match rng.randrange(8):
        case 0 | 1 | 2:
            return where + damage_file(path, rng)
        case 3:
            return where + _plant(path, rng, marker)
        case 4:
            return where + _compress(path, rng)
        case _ if path.suffix == ".pt":
            return where + _change(path, rng)
    return where + _change_arrays(path, rng)


def _plant(path: Path, rng: Random, marker: Path) -> str:
    """Replaces the file or a part of it by a pickle that would run code."""
    bad, protocol = Malicious(marker), rng.choice((2, 4, 5))
    what = rng.choice(("pickle", "torch", "legacy", "part", "numpy"))
    if path.suffix == ".npz":
        what = rng.choice(("pickle", "numpy"))
    match what:
        case "pickle":
            path.write_bytes(pickle.dumps(bad, protocol=protocol))
        case "torch" | "legacy":
            torch.save(
                {"format": 1, "x": bad}, path, _use_new_zipfile_serialization=what == "torch"
            )
        case "numpy":
            array = np.array([bad], dtype=object)
            with path.open("wb") as file:
                np.savez(file, fingerprint=array)
        case _:
            _rewrite(path, {"data.pkl": pickle.dumps(bad, protocol=2)}, ZIP_STORED)
    return f"{path.name}: a pickle that runs code, as {what}"


def _compress(path: Path, rng: Random) -> str:
    """Writes the parts of the file compressed, including a part of 64 MiB of zeros."""
    _rewrite(path, {"data/0": bytes(1 << 26)}, ZIP_DEFLATED)
    return f"{path.name}: compressed, with 64 MiB of zeros"


def _rewrite(path: Path, parts: dict[str, bytes], compression: int) -> None:
    """Writes a zip again, with new content for the parts with these name endings."""
    with ZipFile(path) as old:
        content = {name: old.read(name) for name in old.namelist()}
    file = BytesIO()
    with ZipFile(file, "w", compression) as new:
        for name, data in content.items():
            found = [value for end, value in parts.items() if name.endswith(end)]
            # A fixed date gives the same bytes for the same seed.
            new.writestr(ZipInfo(name), found[0] if found else data, compression)
    path.write_bytes(file.getvalue())


def _change(path: Path, rng: Random) -> str:
    """Changes a value or a tensor of a checkpoint, in a valid file format."""
    state: dict[str, Any] = torch.load(path, weights_only=True)
    tensors = [at for at in places(state) if isinstance(_at(state, at), torch.Tensor)]
    if tensors and rng.random() < 0.4:
        *at, key = rng.choice(tensors)
        parent = _at(state, tuple(at))
        old = parent[key]
        new = {
            "NaN": old * float("nan"), "of int64": old.long(), "of float64": old.double(),
            "flat": old.reshape(-1), "empty": old.reshape(-1)[:0], "sparse": old.to_sparse(),
            "a list": old.tolist(), "twice": torch.stack([old, old]), "complex": old + 0j,
        }  # fmt: skip
        what = rng.choice(sorted(new))
        parent[key] = new[what]
        told = f"{'.'.join(map(str, (*at, key)))} is {what}"
    elif rng.random() < 0.3:
        key = rng.choice(sorted(state))
        state[key] = odd_value(rng)
        told = f"{key} = {shown(state[key])}"
    else:
        told = damage_tree(state, rng)
    torch.save(state, path)
    return f"{path.name}: {told}"


def _at(tree: Any, at: tuple[str | int, ...]) -> Any:
    for step in at:
        tree = tree[step]
    return tree


def _change_arrays(path: Path, rng: Random) -> str:
    """Changes an array of the predictions, in a valid file format."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    name = rng.choice(sorted(arrays))
    old = arrays.pop(name)
    new = {
        "gone": None, "text": np.array("x"), "empty": old.reshape(-1)[:0], "flat": old.reshape(-1),
        "shorter": np.atleast_1d(old)[..., :1], "of bool": old.astype(bool),
        "huge": np.full(old.shape, 1e300), "scalar": np.array(7),
    }  # fmt: skip
    what = rng.choice(sorted(new))
    if (value := new[what]) is not None:
        arrays[name] = value
    with path.open("wb") as opened:
        np.savez(opened, allow_pickle=False, **arrays)
    return f"{path.name}: {name} is {what}"
