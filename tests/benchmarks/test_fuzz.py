"""The fuzzing reports an unclear error and files that a refusal leaves."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from benchmarks.fuzz.base import SPEC, write_shop
from benchmarks.fuzz.check import run_commands
from mtcon_ray.errors import SpecError
from tests.conftest import REPOSITORY


def raising(error: Exception, leaves: Path | None = None) -> Callable[..., NoReturn]:
    def load(*arguments: Any) -> NoReturn:
        if leaves:
            leaves.mkdir(parents=True)
        raise error

    return load


def test_what_is_wrong_with_the_end_of_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_shop(tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))

    def problem() -> str:
        _, ended = run_commands(tmp_path, (("validate", SPEC),), tmp_path / "marker")
        return ended[3]

    assert problem() == ""
    monkeypatch.setattr("mtcon_ray.spec.run_spec.load_spec", raising(RuntimeError("planted")))
    assert "error: unexpected RuntimeError: planted" in problem()
    left = tmp_path / "root" / "sweeps" / "half"
    monkeypatch.setattr("mtcon_ray.spec.run_spec.load_spec", raising(SpecError("x"), left))
    assert problem() == "left root, root/sweeps, root/sweeps/half"


@pytest.mark.soak
def test_damaged_files_are_refused_or_read() -> None:
    """The limit allows for tests that run at the same time."""
    command = (sys.executable, "-m", "benchmarks", "fuzz", "--rounds", "40", "--limit", "120")
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
