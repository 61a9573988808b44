"""Commands run in this process."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from mtcon_ray.cli.main import program
from tests import specs
from tests.sweep.conftest import folder

__all__ = ["folder"]
Invoke = Callable[..., Result]
# A sweep of three trials of two epochs each.
SPEC: dict[str, Any] = {
    **specs.TINY,
    "name": "tiny",
    "data": {"kind": "synthetic", "num_items": 120, "tasks": ["shape"], "held_out": ["mark"]},
    "search": {"space": {"method.temperature": {"grid": [0.1, 0.5, 1.0]}}, "sampler": "grid"},
}


def run(*words: object) -> Result:
    """Runs a command line in this process."""
    return CliRunner().invoke(program, list(map(str, words)))


def accepted(*words: object) -> Result:
    """Runs a command line in this process, which must succeed."""
    done = run(*words)
    assert done.exit_code == 0, done.output
    return done


def refused(*words: object) -> str:
    """Returns the error of a command line with wrong input."""
    done = run(*words)
    assert done.exit_code == 2, done.output
    return done.stderr


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Returns the file of SPEC."""
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    return path


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Returns `run`, with a temporary home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return run
