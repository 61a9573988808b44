"""Commands on a sweep of the first version, and what commands that only show results import."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mtcon_ray.results import load_sweep
from tests.test_imports import run_python
from tests.waiting import PATIENCE_SECONDS

STORED = Path(__file__).parents[1] / "stored" / "first_version"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a copy of the stored sweep, named `old`."""
    shutil.copytree(STORED, tmp_path / "sweeps" / "old")
    return tmp_path


def mtcon_ray(root: Path, *words: str) -> str:
    """Returns what a command prints, run as a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "mtcon_ray", *words, "--root", str(root)],
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_sweeps_of_the_first_version_are_listed_and_reported(root: Path) -> None:
    """Its plan lacks later fields, its spec says `kind: drawn` and has probes without a solver."""
    (listed,) = json.loads(mtcon_ray(root, "list", "--json"))
    assert listed["state"] == "finished"
    assert (listed["num_done"], listed["num_trials"]) == (2, 2)
    best = mtcon_ray(root, "best", "old")
    assert "winner: trial-0000 (temperature=0.1)" in best
    assert "attributes (mAP)" in best
    assert "stopped early" in mtcon_ray(root, "status", "old")
    page = Path(mtcon_ray(root, "report", "old").strip())
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
    folder = root / "sweeps" / "old"
    plan = json.loads((folder / "plan.json").read_text())
    # The plans of this version have the kinds of the labels, so that the spec need not be parsed.
    plan["kinds"] = {"shape": "classes", "attributes": "set", "tilt": "classes"}
    (folder / "plan.json").write_text(json.dumps(plan))
    spec = (folder / "spec.yaml").read_text()
    assert "select" not in spec
    (folder / "spec.yaml").write_text(
        spec.replace("evaluate:\n", "evaluate:\n  select: last\n  neighbours: 20\n")
    )
    where = [] if words[0] in ("schema", "sweep") else ["--root", str(root)]
    assert run_python(WITHOUT_TORCH, *words, *where)
