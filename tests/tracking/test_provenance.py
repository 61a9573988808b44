"""Provenance names code and machine, and omits secrets and unknown values."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mtcon_ray.data.prepared import SETS_TAG
from mtcon_ray.errors import SweepError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.tracking import provenance
from mtcon_ray.tracking.provenance import FINGERPRINT, PLUGIN, changed_since_start, fixed_settings


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@localhost"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, stdout=-3)


def test_the_commit_of_a_folder_is_named_and_no_program_of_its_git_runs(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-q", "-m", "a")
    program, mark = tmp_path / ".git" / "program", tmp_path / ".git" / "mark"
    program.write_text(f"#!/bin/sh\ntouch '{mark}'\nexec cat\n")
    program.chmod(0o755)
    (tmp_path / ".git" / "hooks").mkdir(exist_ok=True)
    (tmp_path / ".git" / "hooks" / "post-index-change").symlink_to(program)
    for key in ("core.fsmonitor", "core.pager", "filter.x.clean", "alias.rev-parse"):
        git(tmp_path, "config", key, str(program))
    (tmp_path / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / ".git" / "info" / "attributes").write_text("a filter=x\n")
    os.utime(tmp_path / "a", (1, 1))  # git would compare the content
    assert len(provenance.provenance(tmp_path)["mtcon.git.commit"]) == 40
    assert not mark.exists()


def test_changed_data_sets_and_plugins_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {FINGERPRINT: "a", SETS_TAG: '{"one": ["x", "a"], "two": ["x", "b"]}', f"{PLUGIN}p": "1"}
    monkeypatch.setattr("mtcon_ray.tracking.provenance.first_tags", lambda folder: tags)
    now = {FINGERPRINT: "a", f"{PLUGIN}p": "2", f"{PLUGIN}q": "1"}
    [told] = changed_since_start(Path("s"), now, {"two": ("x", "b"), "three": ("x", "c")})
    assert told == "plugin.p was 1, is 2: trials of both codes are compared"
    for fingerprint, other in (("b", "b"), ("a", "c")):
        with pytest.raises(SweepError, match="images, labels, splits or groups have changed"):
            changed_since_start(Path("s"), {FINGERPRINT: fingerprint}, {"two": ("x", other)})


def test_outside_git_nothing_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert not [t for t in provenance.provenance(tmp_path) if ".git." in t]
    monkeypatch.setenv("PATH", "")
    assert not [t for t in provenance.provenance(tmp_path) if ".git." in t]


def test_versions_and_hardware_are_strings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["sweep", "a b", "--set", "tracking.uri=http://u:pw@h"])
    tags = provenance.provenance(tmp_path)
    assert tags["mtcon.command"] == "sweep 'a b' --set tracking.uri=http://u:***@h"
    assert tags["mtcon.version.torch"].startswith("2.")
    assert int(tags["mtcon.cpus"]) >= 1
    assert float(tags["mtcon.memory_gib"]) > 0
    assert all(isinstance(value, str) and value for value in tags.values())
    assert tags["mlflow.source.type"] == "LOCAL"


def test_settings_are_those_that_are_not_searched() -> None:
    raw = {
        "name": "mine",
        "data": {"kind": "synthetic", "tasks": ["shape", "colour"], "held_out": ["tilt"]},
        "search": {"space": {"method.temperature": {"uniform": [0.1, 1]}}},
    }
    found = fixed_settings(parse_spec(raw))
    assert found["data.tasks"] == "shape, colour"
    assert (found["model.encoder.name"], found["seed"]) == ("resnet18", "0")
    assert "method.temperature" not in found
    assert found["method.weighting"] == "learned"
    space = {"train.lr": {"uniform": [0.1, 1]}}
    others = fixed_settings(parse_spec({**raw, "search": {"space": space}, "method": "xent"}))
    assert others["method.name"] == "xent"
    assert not {"method.temperature", "train.lr"} & set(others)
