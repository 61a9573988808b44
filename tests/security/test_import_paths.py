"""Folders of data, specs and results, which may be a stranger's, are on no import path."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

from mtcon_ray.paths import sweep_folder
from tests.sweep.small_sweeps import TINY

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow]

# Modules that Python, Ray, torch or this package imports.
MODULES = (
    "numpy", "pandas", "yaml", "pydantic", "mtcon_ray", "torch", "ray", "sitecustomize",
    "multiprocessing", "signal",
)  # fmt: skip
PROGRAM = str(Path(sys.executable).parent / "mtcon-ray")
LIGHT = (
    "validate a.yaml", "plan a.yaml", "init labels.csv images -o new.yaml", "list", "schema",
    "status first", "best first", "report first", "audit first", "track-sync first",
    "export-tracking first --to tensorboard", "export first --to out", "clean first",
)  # fmt: skip


def plant(folder: Path, mark: Path) -> None:
    for name in MODULES:
        text = f"import os\nos.makedirs({str(mark / name)!r}, exist_ok=True)\n"
        (folder / f"{name}.py").write_text(text)


def write_data(folder: Path) -> None:
    (folder / "images").mkdir(parents=True)
    rows = ["image,colour"]
    for number in range(60):
        image = Image.new("RGB", (16, 16), (200 * (number % 2), 4 * number, 90))
        image.save(folder / "images" / f"{number}.png")
        rows.append(f"{number}.png,{'red' if number % 2 else 'blue'}")
    (folder / "labels.csv").write_text("\n".join(rows))


def test_no_command_runs_a_module_of_a_folder_of_data_specs_or_results(tmp_path: Path) -> None:
    """The current folder holds data and specs; each module in it and in the sweep leaves a mark."""
    data, root, mark = tmp_path / "data", tmp_path / "root", tmp_path / "mark"
    write_data(data)
    table = {"kind": "table", "csv": "labels.csv", "images": "images", "tasks": ["colour"]}
    spec = {
        **TINY,
        "data": table,
        "train": {"epochs": 1, "batch_size": 8, "warmup_epochs": 0},
        "tracking": {"offline": True},
        "search": {"space": {"method.temperature": {"grid": [0.1]}}, "sampler": "grid"},
    }
    (data / "a.yaml").write_text(yaml.safe_dump(spec))
    systems = {"one": {}, "two": {"method.temperature": 0.2}}
    base = {name: part for name, part in spec.items() if name not in ("version", "search", "name")}
    comparison = {"version": 1, "name": "c", "base": base, "seeds": 1, "systems": systems}
    (data / "c.yaml").write_text(yaml.safe_dump(comparison))
    plant(data, mark)

    def run(line: str, *program: str) -> subprocess.CompletedProcess[str]:
        needs_root = line.split()[0] not in ("schema", "init")
        words = [*(program or [PROGRAM]), *line.split(), *(["--root", str(root)] * needs_root)]
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
        done = subprocess.run(words, cwd=data, env=environment, capture_output=True, text=True)
        marks = sorted(each.name for each in mark.iterdir()) if mark.exists() else []
        assert not marks, f"{line} ran {marks}"
        return done

    done = run("sweep a.yaml --name first")
    assert done.returncode == 0, done.stderr
    plant(sweep_folder(root, "first"), mark)
    for line in LIGHT:
        done = run(line)
        assert "Traceback" not in done.stderr, done.stderr
    done = run("resume first --set search.num_trials=2")
    assert "Traceback" not in done.stderr, done.stderr
    done = run("compare c.yaml")
    assert done.returncode == 0, done.stderr
    done = run("train a.yaml", sys.executable, "-P", "-m", "mtcon_ray")
    assert done.returncode == 0, done.stderr
