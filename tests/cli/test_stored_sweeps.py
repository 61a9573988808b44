"""Tests of what commands that only show results import."""

from pathlib import Path

import pytest

from tests.processes import run_python
from tests.stored_sweep import copy_stored


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a copy of the stored sweep, named `old`."""
    copy_stored(tmp_path / "sweeps" / "old")
    return tmp_path


WITHOUT_TORCH = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "torchvision", "pandas", "ray", "mlflow", "optuna"}:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
from mtcon_ray.cli.main import program
program.main(sys.argv[1:], standalone_mode=False)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["list"], ["status", "old"], ["best", "old"], ["schema"], ["sweep", "--help"]]
)
def test_commands_that_show_results_import_nothing_slow(root: Path, words: list[str]) -> None:
    where = [] if words[0] in ("schema", "sweep") else ["--root", str(root)]
    assert run_python("-c", WITHOUT_TORCH, *words, *where).stdout
