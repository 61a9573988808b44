"""Commands run in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mtcon_ray.cli.main import program

Invoke = Callable[..., Result]


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Returns a function that runs a command line in this process with a temporary home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    runner = CliRunner()
    return lambda *arguments: runner.invoke(program, list(map(str, arguments)))
