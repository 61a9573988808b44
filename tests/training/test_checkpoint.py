"""Checkpoints: atomic writes, and rejection of damaged files."""

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from mtcon_ray.base.paths import LAST_FILE, PREVIOUS_FILE
from mtcon_ray.data.disk import whole_file
from mtcon_ray.errors import CheckpointError, PreemptedError, StorageError
from mtcon_ray.spec.run_spec import dump_spec, parse_spec, with_values
from mtcon_ray.training import checkpoint
from mtcon_ray.training.checkpoint import check_same_training
from tests.some import some


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The message names the file and the way out."""
    with pytest.raises(StorageError, match=r"cannot write .*gone/last\.pt: .*; free disk"):
        checkpoint.save(tmp_path / "gone" / "last.pt", {})


def test_a_damaged_checkpoint_leaves_the_one_before_it_else_the_start(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint.save(tmp_path / LAST_FILE, {"step": step}, previous=tmp_path / PREVIOUS_FILE)
    assert sorted(os.listdir(tmp_path)) == ["last.previous.pt", "last.pt"]
    state, path, damage = checkpoint.load_newest(tmp_path)
    assert (some(state)["step"], path, damage) == (3, tmp_path / "last.pt", None)
    (tmp_path / "last.pt").write_bytes(bytes(5000))
    state, path, damage = checkpoint.load_newest(tmp_path)
    assert (some(state)["step"], path) == (2, tmp_path / "last.previous.pt")
    assert some(damage).startswith(f"checkpoint {tmp_path / 'last.pt'} is not a whole file")
    (tmp_path / "last.pt").unlink()  # as after a kill between the two renames of a save
    state, _, damage = checkpoint.load_newest(tmp_path)
    assert (some(state)["step"], damage) == (2, None)
    (tmp_path / "last.previous.pt").write_bytes(b"")
    state, path, damage = checkpoint.load_newest(tmp_path)
    assert (state, path) == (None, None)
    assert "last.previous.pt is not a whole file" in some(damage)


def test_a_process_that_was_frozen_in_a_write_changes_nothing_later(tmp_path: Path) -> None:
    """Meanwhile a process of the next driver has written the same file, and writes it again."""
    path = tmp_path / "model.pt"
    refuse = Mock(side_effect=PreemptedError("a later driver has taken over"))
    stack = ExitStack()
    frozen = stack.enter_context(whole_file(path, check=refuse))
    frozen.write(b"old, ")
    with whole_file(path) as file:
        file.write(b"new")
    frozen.write(b"and continued")
    frozen.flush()
    assert path.read_bytes() == b"new"
    with whole_file(path) as file:
        file.write(b"newer")
        with pytest.raises(PreemptedError):
            stack.close()
    assert path.read_bytes() == b"newer"
    with pytest.raises(PreemptedError):
        checkpoint.save(path, {}, previous=tmp_path / "previous.pt", check=refuse)
    assert path.read_bytes() == b"newer"


@pytest.mark.parametrize(
    "error", [torch.AcceleratorError("an illegal memory access", 700), TypeError("cannot pickle")]
)
def test_a_save_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """An error of an earlier, asynchronous kernel is raised when the weights are copied.

    It is not told as an error of the disk.
    """
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"step": 1})
    monkeypatch.setattr(torch, "save", Mock(side_effect=error))
    with pytest.raises(type(error), match=r"illegal|cannot pickle"):
        checkpoint.save(path, {"step": 2})
    assert (checkpoint.load(path)["step"], os.listdir(tmp_path)) == (1, ["last.pt"])


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "flipped", "code", "list", "format"])
def test_a_file_that_is_not_ours_and_whole_is_refused(tmp_path: Path, damage: str) -> None:
    """For every kind of damage the error is a CheckpointError that names the file."""
    path = tmp_path / "last.pt"
    checkpoint.save(path, {"tensor": torch.arange(1000)})
    content = bytearray(path.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    kept = {"empty": b"", "cut": content[:-500], "text": b"not a checkpoint", "flipped": content}
    if damage in kept:
        path.write_bytes(bytes(kept[damage]))
    else:
        other: dict[str, Any] = {"code": {"format": 1, "run": os.getcwd}, "list": [1, 2]}
        torch.save(other.get(damage, {"format": 99}), path)
    with pytest.raises(CheckpointError, match=r"last\.pt (is not a whole|was not|must have)"):
        checkpoint.load(path)


SPEC = parse_spec({"name": "one", "data": {"kind": "synthetic"}})
STATE = {"spec": json.dumps(dump_spec(SPEC)), "fingerprint": "abc"}


CHANGED = [
    ("model.encoder", {"name": "vit"}, "model.encoder.name was 'resnet18', is 'vit'"),
    ("data.tasks", ["colour"], r"data.tasks was \['shape'.*\], is \['colour'\]"),
    ("views.size", 32, "views.size was 64, is 32"),
    ("method.temperature", 0.2, "method.temperature was 0.1, is 0.2"),
    ("train.lr", 0.1, "train.lr was 0.2, is 0.1"),
    ("evaluate.every", 2, "evaluate.every was 1, is 2"),
    ("evaluate.select", "best", "evaluate.select was 'last', is 'best'"),
    ("seed", 1, "seed was 0, is 1"),
]


@pytest.mark.parametrize(("path", "value", "message"), CHANGED)
def test_a_changed_training_is_refused_by_field(path: str, value: Any, message: str) -> None:
    """Every field that affects the training is compared."""
    with pytest.raises(CheckpointError, match=message):
        check_same_training(Path("last.pt"), STATE, with_values(SPEC, {path: value}), "abc")


def test_other_data_are_refused_and_what_does_not_change_the_training_may_differ() -> None:
    """Name, resources and the settings of the test evaluation may differ."""
    other = with_values(SPEC, {"name": "two", "resources.workers": 2, "evaluate.bootstrap": 10})
    check_same_training(Path("last.pt"), STATE, other, "abc")
    with pytest.raises(CheckpointError, match="data fingerprint was 'abc', is 'xyz'"):
        check_same_training(Path("last.pt"), STATE, other, "xyz")


def test_only_a_checkpoint_of_another_training_is_discarded(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "last.pt", STATE)
    for path, value, is_kept in (("resources.cpus", 2, True), ("train.lr", 0.1, False)):
        checkpoint.discard_other_training(tmp_path, with_values(SPEC, {path: value}))
        assert (tmp_path / "last.pt").exists() is is_kept
