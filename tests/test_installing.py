"""The package as others install it: a wheel, without the repository."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.pages import REPOSITORY, run_by

# The demo is run whole; the sweep of its spec is made smaller.
SMALL = (
    "--set data.num_items=300 --set views.size=16 --set train.epochs=2 --set evaluate.bootstrap=20"
)


def own_environment(home: Path) -> dict[str, str]:
    """Returns variables of a user who has no repository, and pip's settings of this one."""
    own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    folders = {"XDG_CONFIG_HOME": ".config", "XDG_CACHE_HOME": ".cache"}
    settings = {name: str(Path.home() / folder) for name, folder in folders.items()}
    return {**settings, **own, "HOME": str(home)}


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
def test_a_wheel_runs_without_the_repository(tmp_path: Path) -> None:
    """Every command of docs/installing.md, in an environment of its own with all packages."""
    blocks = run_by("tests/test_installing.py::test_a_wheel_runs_without_the_repository")
    code = "".join(block.code for block in blocks).replace("CHECKOUT", str(REPOSITORY))
    code = code.replace("sweep spec.yaml", f"sweep spec.yaml --name mine {SMALL}")
    code = code.replace("NAME", "mine")
    code += (
        "python -c 'import mtcon_ray; print(mtcon_ray.__file__)'; mtcon-ray -q examples new; ls new"
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=tmp_path, env=own_environment(tmp_path), capture_output=True, text=True, timeout=3000,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert done.stdout.count("winner: trial-") == 2
    assert "temperature-1" in done.stdout
    package, *copied = done.stdout.split()[-4:]
    assert Path(package).is_relative_to(tmp_path / ".venv")
    assert copied == ["cluster", "examples", "experiments"]
