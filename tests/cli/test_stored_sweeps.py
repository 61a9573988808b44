"""Commands on a sweep of the first version, and what commands that only show results import."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from mtcon_ray.cli.main import program
from mtcon_ray.results import load_sweep
from tests.stored_sweep import add_kinds, copy_stored
from tests.test_imports import run_python


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a copy of the stored sweep, named `old`."""
    copy_stored(tmp_path / "sweeps" / "old")
    return tmp_path


def shown(root: Path, *words: str) -> str:
    """Returns what a command prints."""
    done = CliRunner().invoke(program, [*words, "--root", str(root)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_sweeps_of_the_first_version_are_listed_and_reported(root: Path) -> None:
    """Its plan lacks later fields, its spec says `kind: drawn` and has probes without a solver."""
    (listed,) = json.loads(shown(root, "list", "--json"))
    assert listed["state"] == "finished"
    assert (listed["num_done"], listed["num_trials"]) == (2, 2)
    best = shown(root, "best", "old")
    assert "winner: trial-0000 (temperature=0.1)" in best
    assert "attributes (mAP)" in best
    assert "stopped early" in shown(root, "status", "old")
    page = Path(shown(root, "report", "old").strip())
    assert "trial-0000" in page.read_text(encoding="utf-8")
    results = load_sweep(root / "sweeps" / "old")
    assert results.spec.data.kind == "synthetic"
    assert results.spec.evaluate.probe.solver == "sgd"
    assert results.plan is not None
    assert results.plan.standard_error is None


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
    add_kinds(root / "sweeps" / "old")
    where = [] if words[0] in ("schema", "sweep") else ["--root", str(root)]
    assert run_python(WITHOUT_TORCH, *words, *where)
