"""Folders of data, specs and results, which may be a stranger's, are on no import path."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.base import paths
from mtcon_ray.records.results import load_sweep
from tests import specs
from tests.cluster.conftest import environment_of, head_of, make_token
from tests.cluster.user import PLUGIN
from tests.tables import write_table

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow]

# Modules that Python, Ray, torch or this package imports.
MODULES = (
    "numpy", "pandas", "yaml", "pydantic", "mtcon_ray", "torch", "ray", "sitecustomize",
    "multiprocessing", "signal",
)  # fmt: skip
PROGRAM, RAY = (str(Path(sys.executable).parent / name) for name in ("mtcon-ray", "ray"))
# In one process, which begins as the installed program does: Python needs seconds for the imports.
LIGHT = """
import sys
from mtcon_ray.cli.main import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as end:
        print(line, "ended with", end.code)
"""
COMMANDS = (
    "validate a.yaml", "plan a.yaml", "list", "status first", "best first", "report first",
    "audit first --repair", "export first --out out", "export first --to optuna", "clean first",
    "train a.yaml", "schema", "init labels.csv images -o new.yaml", "evaluate model.pt",
)  # fmt: skip


def plant(folder: Path, mark: Path) -> None:
    for name in MODULES:
        text = f"import os\nos.makedirs({str(mark / name)!r}, exist_ok=True)\n"
        (folder / f"{name}.py").write_text(text)


class Stranger:
    """A folder of data and specs with modules that leave a mark, in which commands are run."""

    def __init__(self, folder: Path) -> None:
        self.data, self.root, self.mark = folder / "data", folder / "root", folder / "mark"
        write_table(self.data, colour=["red", "blue"])
        data = {"kind": "table", "csv": "labels.csv", "images": "images", "tasks": ["colour"]}
        base = {**specs.SHORT, "data": data, "train": {"epochs": 1, "batch_size": 16}}
        search = {"space": {"method.temperature": {"uniform": [0.1, 1.0]}}, "num_trials": 1}
        self.write("a.yaml", {"name": "a", **base, "search": search})
        systems = {"A": {"method": "xent", "seeds": 1}}
        self.write("c.yaml", {"name": "c", "base": base, "systems": systems})
        own = {"plugins": ["own"], "model": {"encoder": {"name": "own", "width": 8}}}
        self.write("own.yaml", {"name": "own", **base, **own, "search": search})
        (self.data / "own.py").write_text(PLUGIN)
        plant(self.data, self.mark)

    def write(self, name: str, content: dict[str, Any]) -> None:
        (self.data / name).write_text(yaml.safe_dump(content))

    def run(self, *words: str, **variables: str) -> str:
        environment = {**os.environ, "MTCON_RAY_ROOT": str(self.root), **variables}
        done = subprocess.run(words, cwd=self.data, env=environment, capture_output=True, text=True)
        marks = sorted(each.name for each in self.mark.iterdir()) if self.mark.exists() else []
        assert not marks, f"{words} ran {marks}"
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Stranger:
    """Returns such a folder and the sweep `first`, whose records have modules beside them, too."""
    made = Stranger(tmp_path_factory.mktemp("stranger"))
    made.run(PROGRAM, "sweep", "a.yaml", "--name", "first")
    folder = paths.sweep_folder(made.root, "first")
    plant(folder, made.mark)
    shutil.copy(
        paths.kept_model(paths.checkpoint_folder(folder, "trial-0000")), made.data / "model.pt"
    )
    return made


def test_no_command_without_ray_runs_a_stranger_s_module(
    stranger: Stranger, tmp_path: Path
) -> None:
    script = tmp_path / "light.py"
    script.write_text(LIGHT)
    told = stranger.run(sys.executable, str(script), *COMMANDS)
    for line in COMMANDS:
        assert f"{line} ended with 0\n" in told, told


def test_no_resume_runs_a_stranger_s_module(stranger: Stranger) -> None:
    stranger.run(PROGRAM, "resume", "first", "--set", "search.num_trials=2")
    assert len(load_sweep(paths.sweep_folder(stranger.root, "first")).trials) == 2


def test_no_comparison_runs_a_stranger_s_module(tmp_path: Path) -> None:
    Stranger(tmp_path).run(sys.executable, "-P", "-m", "mtcon_ray", "compare", "c.yaml")


def test_a_trusted_plugin_brings_no_other_module_of_its_folder(tmp_path: Path) -> None:
    stranger = Stranger(tmp_path)
    stranger.run(PROGRAM, "sweep", "own.yaml", "--allow-plugins", HOME=str(tmp_path))
    # After a local sweep `ray start --head` and `ray job submit` work as they did before it.
    assert not (tmp_path / ".ray").exists()
    assert len(load_sweep(paths.sweep_folder(stranger.root, "own-1")).trials) == 1


def test_no_job_of_a_spec_runs_a_stranger_s_module(tmp_path: Path) -> None:
    """By `mtcon-ray submit` in the stranger's folder, and by Ray's own command."""
    stranger = Stranger(tmp_path)
    environment = {**environment_of(tmp_path), "MTCON_RAY_ROOT": str(stranger.root)}
    make_token(environment)
    with head_of(environment) as start:
        client = {
            "HOME": str(tmp_path),
            "RAY_API_SERVER_ADDRESS": start(),
            "RAY_AUTH_MODE": "token",
        }
        stranger.run(PROGRAM, "submit", "a.yaml", **client)
        program = [RAY, "job", "submit", "--", PROGRAM, "sweep", str(stranger.data / "a.yaml")]
        stranger.run(*program, **client)
    assert [each.name for each in paths.list_folders(paths.sweeps_folder(stranger.root))] == [
        "a-1",
        "a-2",
    ]
