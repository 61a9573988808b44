"""The fuzzing: its cases repeat, and it reports traces, leftovers, hangs and crashes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch

from benchmarks.fuzz import program
from benchmarks.fuzz.base import CUT, SPEC, SWEEP, WHOLE, write_shop
from benchmarks.fuzz.cases import KINDS, Case, planned
from benchmarks.fuzz.check import run_commands
from benchmarks.fuzz.damage import copy_base
from benchmarks.fuzz.worker import Outcome, forked
from mtcon_ray.errors import SpecError
from tests.conftest import REPOSITORY

FORKS = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def write_files(folder: Path) -> None:
    """Writes files of the names and formats of the undamaged ones, without a training."""
    write_shop(folder / "shop")
    event = {"kind": "start", "params": {}, "tags": {}, "time_ms": 0}
    lines = "".join(json.dumps({"seq": seq, **event}) + "\n" for seq in range(3))
    root = folder / "root"
    for name in (f"runs/{WHOLE}", f"runs/{CUT}", f"sweeps/{SWEEP}"):
        files = root / name
        (files / "spool").mkdir(parents=True)
        (files / "checkpoints" / "trial-0000").mkdir(parents=True)
        (files / "spec.yaml").write_text("name: x\ntrain: {epochs: 2}\n")
        logs = ("parent", "trial-0000", "trial-0001")
        for log in ("study.journal", *(f"spool/{log}.jsonl" for log in logs)):
            (files / log).write_text(lines)
        for place in (files, files / "checkpoints" / "trial-0000"):
            for model in ("model.pt", "last.pt", "last.previous.pt"):
                torch.save({"format": 1, "x": torch.ones(2), "y": [1]}, place / model)
            np.savez(place / "predictions.npz", fingerprint=np.array("x"))


def content(folder: Path) -> dict[str, bytes | str]:
    """Returns the content of each file, and the target of each link, by path."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(folder))] = os.readlink(path)
        elif path.is_file():
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


def test_a_seed_gives_the_same_damage(tmp_path: Path) -> None:
    """In each kind of file, and another seed gives another damage."""
    write_files(tmp_path / "base")
    before, told = content(tmp_path / "base"), set()
    for kind in KINDS:
        for seed in range(2):
            case, after = Case(kind, seed), []
            for again in range(2):
                folder = tmp_path / f"{kind}-{seed}-{again}"
                copy_base(tmp_path / "base", folder)
                # The marker's path is a part of some damages. A repeated case has the same one.
                told.add(f"{kind} {case.damage(folder, tmp_path / 'marker')}")
                after.append(content(folder))
            assert after[0] == after[1]
            assert after[0] != before
            assert case.commands == Case(kind, seed).commands
    assert len(told) == 2 * len(KINDS)


def test_kinds_come_in_turns() -> None:
    assert planned(["csv", "tar"], 3, 7) == [Case("csv", 7), Case("tar", 8), Case("csv", 9)]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a case's folder without damage, and works in its shop."""
    write_shop(tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def problem_of(folder: Path) -> str:
    """Returns what is wrong with the end of `validate`."""
    commands = (("validate", SPEC),)
    begun, ended = run_commands(folder, commands, folder / "marker")
    assert begun[:2] == (f"mtcon-ray validate {SPEC}", None)
    assert ended[1] is not None
    return ended[3]


def raising(error: Exception, leaves: Path | None = None) -> Callable[..., NoReturn]:
    def load(*arguments: Any) -> NoReturn:
        if leaves:
            leaves.mkdir(parents=True)
        raise error

    return load


def test_a_clear_end_passes(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert problem_of(shop) == ""
    monkeypatch.setattr("mtcon_ray.spec.load_spec", raising(SpecError("x must be y, got z")))
    assert problem_of(shop) == ""


def test_an_unclear_error_is_reported(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtcon_ray.spec.load_spec", raising(RuntimeError("planted")))
    assert "error: unexpected RuntimeError: planted" in problem_of(shop)


def test_what_a_refusal_leaves_is_reported(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = shop / "root" / "sweeps" / "half"
    monkeypatch.setattr("mtcon_ray.spec.load_spec", raising(SpecError("x"), left))
    assert problem_of(shop) == "left root, root/sweeps, root/sweeps/half"
    (shop / "marker").mkdir()
    monkeypatch.setattr("mtcon_ray.spec.load_spec", raising(SpecError("x")))
    assert problem_of(shop) == "ran code from a file"


@FORKS
def test_a_hang_a_crash_and_a_trace_are_reported(tmp_path: Path) -> None:
    def crash(tell: Callable[..., None]) -> None:
        tell("begun", 1)
        os.kill(os.getpid(), signal.SIGKILL)

    def fail(tell: Callable[..., None]) -> None:
        raise RuntimeError("planted")

    log = tmp_path / "log"
    assert [*forked(lambda tell: tell("done"), 60, log)] == [("done",)]
    hang = [*forked(lambda tell: time.sleep(60), 0.2, log)]
    assert hang == [("failed", "has not ended after 0.2 s")]
    assert [*forked(crash, 60, log)] == [("begun", 1), ("failed", "its process ended with -9")]
    assert [*forked(fail, 60, log)] == [("failed", "its process ended with 1")]
    assert "RuntimeError: planted" in log.read_text()


def test_a_failed_case_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    failed = Outcome(Case("tar", 9), "cut to 1 byte", [1.0, 3.0], 1, ["mtcon-ray validate: x"])
    assert program.lines(failed) == [
        "FAILED tar 9: cut to 1 byte",
        "  mtcon-ray validate: x",
        "  again: python -m benchmarks fuzz --rounds 1 --seed 9 tar",
    ]
    rows = program.table([failed, Outcome(Case("tar", 10), seconds=[2.0])]).splitlines()
    assert rows[2:] == [
        "| tar | 2 | 3 | 1 | 1 | 2.00 | 3.0 |",
        "| all | 2 | 3 | 1 | 1 | 2.00 | 3.0 |",
    ]
    with pytest.raises(SystemExit):
        program.main(["tars"])
    assert "KIND must be one of spec, csv, images, tar" in capsys.readouterr().err


@pytest.mark.soak
def test_damaged_files_are_refused_or_read() -> None:
    """The limit allows for tests beside it."""
    command = (sys.executable, "-m", "benchmarks", "fuzz", "--rounds", "40", "--limit", "120")
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
