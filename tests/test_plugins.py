"""Plugins in processes of their own, since a registered class stays in its table."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

from mtcon_ray.paths import sweep_folder
from mtcon_ray.recorded import load_recorded
from mtcon_ray.results import load_sweep
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Started
from tests.waiting import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parent.parent
PAGE = (REPOSITORY / "docs" / "extending.md").read_text("utf-8")
CONSENT = "MTCON_RAY_ALLOW_PLUGINS"


def example_files() -> dict[str, str]:
    """Returns the Python files of docs/extending.md by name."""
    return dict(
        re.findall(r"^`mtcon_example/(\w+\.py)`:.*?^```python\n(.*?)^```", PAGE, re.S | re.M)
    )


def project() -> dict[str, object]:
    """Returns the pyproject.toml of docs/extending.md."""
    (text,) = re.findall(r"^```toml\n# pyproject.toml\n(.*?)^```", PAGE, re.S | re.M)
    found: dict[str, object] = tomllib.loads(text)["project"]
    return found


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Returns a folder of packages in which pip would have installed the example."""
    site = tmp_path / "site"
    package, info = site / "mtcon_example", site / "mtcon_example-0.1.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    for name, code in {**example_files(), "__init__.py": ""}.items():
        (package / name).write_text(code)
    given = project()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {given['name']}\nVersion: {given['version']}\n"
    )
    groups = given["entry-points"]
    assert isinstance(groups, dict)
    assert sum(len(modules) for modules in groups.values()) == len(example_files()) == 4
    lines = [
        line
        for group, modules in groups.items()
        for line in (f"[{group}]", *(f"{name} = {module}" for name, module in modules.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return site


def write_spec(folder: Path, **changes: object) -> Path:
    """Writes a spec of small trainings on the example's kind of data, and its images."""
    shapes = np.array(["disc", "ring"] * 60)
    images = np.random.default_rng(0).integers(0, 255, (120, 16, 16, 3), dtype=np.uint8)
    np.savez(folder / "toy.npz", images=images, shape=shapes)
    spec = {
        "name": "own",
        "data": {"kind": "arrays", "file": "toy.npz", "tasks": ["shape"]},
        "views": {"size": 12},
        "model": {"encoder": {"name": "flat", "width": 16}, "head_dim": 8},
        "method": "blend",
        "train": {"epochs": 1, "warmup_epochs": 0, "batch_size": 16},
        "evaluate": {"bootstrap": 10},
        "search": {
            "space": {"train.epochs": {"grid": [1, 4]}},
            "sampler": "grid",
            "scheduler": {"name": "patience", "probes": 1},
        },
        "tracking": {"offline": True},
        "storage": {"root": "root"},
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({**spec, **changes}))
    return path


def command(
    folder: Path, *words: str, site: Path | None = None, **variables: str
) -> tuple[int, str]:
    """Runs mtcon-ray in a folder; returns exit code and output."""
    paths = [str(site)] if site else []
    environment = {
        **{name: value for name, value in os.environ.items() if name != CONSENT},
        "PYTHONPATH": os.pathsep.join([*paths, str(REPOSITORY)]),
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-m", "mtcon_ray", *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_an_installed_package_is_known_everywhere(tmp_path: Path, installed: Path) -> None:
    write_spec(tmp_path)
    code, text = command(tmp_path, "plan", "spec.yaml", site=installed)
    assert code == 0, text
    assert "flat" in text
    assert "patience" in text
    code, text = command(tmp_path, "schema", site=installed)
    assert all(f'"{name}"' in text for name in ("blend", "flat", "arrays", "patience"))
    code, text = command(tmp_path, "validate", "spec.yaml")
    assert code == 2
    assert "data: unknown kind 'arrays'" in text or "data.kind: unknown kind 'arrays'" in text


def test_a_broken_installed_plugin_is_named(tmp_path: Path, installed: Path) -> None:
    """Only by commands that need it."""
    write_spec(tmp_path)
    (installed / "mtcon_example" / "blend.py").write_text("import nothing_of_this_name\n")
    code, text = command(tmp_path, "validate", "spec.yaml", site=installed)
    assert code == 2
    assert "'mtcon_example.blend' of mtcon-example must be importable, got Module" in text
    assert command(tmp_path, "list", "--root", "root", site=installed)[0] == 0


def test_modules_beside_a_spec_need_consent(tmp_path: Path) -> None:
    """They are found in the spec's folder, by a command in any folder."""
    for name, code in example_files().items():
        (tmp_path / name).write_text(code)
    modules = [name.removesuffix(".py") for name in example_files()]
    spec = str(write_spec(tmp_path, plugins=modules))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code_, text = command(elsewhere, "validate", spec)
    assert code_ == 2
    assert f"plugins must be allowed, for they are code that runs here, got {modules[0]}" in text
    assert "--allow-plugins" in text
    assert command(elsewhere, "validate", spec, "--allow-plugins")[0] == 0
    assert command(elsewhere, "validate", spec, **{CONSENT: "1"})[0] == 0
    (tmp_path / "blend.py").write_text("raise RuntimeError('not today')")
    code_, text = command(elsewhere, "validate", spec, "--allow-plugins")
    assert code_ == 2
    assert "got 'blend': RuntimeError: not today" in text


def test_what_is_no_module_name_is_never_imported(tmp_path: Path) -> None:
    (tmp_path / "bad-name.py").write_text("print('it ran')")
    write_spec(tmp_path, plugins=["bad-name"])
    code, text = command(tmp_path, "validate", "spec.yaml", "--allow-plugins")
    assert code == 2
    assert "plugins.0" in text
    assert "it ran" not in text


@pytest.mark.ray
@pytest.mark.mlflow
def test_a_sweep_of_plugins_and_its_results_without_them(tmp_path: Path) -> None:
    """Trials import the modules, too; commands that only show results do without."""
    for name, code in example_files().items():
        (tmp_path / name).write_text(code)
    modules = [name.removesuffix(".py") for name in example_files()]
    spec = str(write_spec(tmp_path, plugins=modules))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    code_, text = command(elsewhere, "sweep", spec, "--allow-plugins", "--name", "own")
    assert code_ == 0, text
    folder = sweep_folder(tmp_path / "root", "own")
    trials = load_sweep(folder).trials
    assert [trial.status for trial in trials][0] == "FINISHED"
    assert trials[1].status in ("FINISHED", "PRUNED")
    (start,) = [
        e for e in EventLog.read(folder / "spool" / "parent.jsonl") if isinstance(e, Started)
    ]
    assert start.tags["mtcon.plugin.blend"].startswith("sha256:")
    for name in example_files():
        (tmp_path / name).unlink()
    root = ("--root", str(tmp_path / "root"))
    for words in (("list",), ("status", "own"), ("report", "own"), ("best", "own")):
        code_, text = command(elsewhere, *words, *root)
        assert code_ == 0, text
        assert "own" in text
    assert "blend on flat" in (folder / "report" / "index.html").read_text()
    with pytest.raises(Exception, match="plugins must be allowed"):
        load_recorded(folder / "spec.yaml")
