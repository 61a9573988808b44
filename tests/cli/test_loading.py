"""The packages that a command may import: it shall answer before they are loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent.parent
TINY = """
version: 1
name: tiny
data: {kind: synthetic, num_items: 120}
search: {space: {method.temperature: {grid: [0.1, 0.5]}}, sampler: grid}
"""
HEAVY = (
    "torch", "torch._dynamo", "torchvision", "pandas", "ray", "ray.tune", "mlflow", "optuna",
    "matplotlib",
)  # fmt: skip


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Writes a small spec on synthetic images; returns its path."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


def loaded_by(*arguments: str) -> set[str]:
    """Returns the heavy packages that a command line imports, in a new process."""
    code = (
        "import sys\nfrom mtcon_ray.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print('|', *sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(HEAVY) & set(done.stderr.rpartition("|")[2].split())


def test_help_and_version_load_nothing_heavy() -> None:
    assert loaded_by("--help") == set()
    assert loaded_by("--version") == set()


@pytest.mark.slow
def test_validate_loads_neither_ray_nor_mlflow_nor_optuna(spec: Path) -> None:
    assert not loaded_by("validate", str(spec)) & {"ray", "mlflow", "optuna"}


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ["small", "resnet18", "resnet50"])
def test_a_plan_waits_for_neither_tune_nor_mlflow(spec: Path, tmp_path: Path, encoder: str) -> None:
    """It does not wait for torch's compiler either."""
    chosen = ("--set", f"model.encoder={encoder}")
    loaded = loaded_by("plan", str(spec), "--root", str(tmp_path), *chosen)
    assert not loaded & {"ray.tune", "mlflow", "torchvision", "torch._dynamo"}
