"""Plugins in processes of their own, since a registered class stays in its table."""

import os
import re
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
import yaml

from mtcon_ray.base import plugins
from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.errors import SpecError
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.records.results import load_sweep
from tests import specs
from tests.cli.conftest import accepted, refused
from tests.processes import REPOSITORY, run_python
from tests.stored_sweep import copy_stored

PAGE = (REPOSITORY / "docs" / "extending.md").read_text("utf-8")


def example_files() -> dict[str, str]:
    """Returns the Python files of docs/extending.md by name."""
    file = r"^`mtcon_example/(\w+\.py)`:.*?^```python\n(.*?)^```"
    return dict(re.findall(file, PAGE, re.S | re.M))


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """Returns a PYTHONPATH of this package and a folder in which pip has installed the example."""
    site = tmp_path / "site"
    package, info = site / "mtcon_example", site / "mtcon_example-0.1.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    for name, code in {**example_files(), "__init__.py": ""}.items():
        (package / name).write_text(code)
    (text,) = re.findall(r"^```toml\n# pyproject.toml\n(.*?)^```", PAGE, re.S | re.M)
    project = tomllib.loads(text)["project"]
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(about)
    lines = []
    for group, modules in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {module}" for name, module in modules.items())]
    assert len([line for line in lines if "=" in line]) == len(example_files()) == 9
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return f"{site}{os.pathsep}{REPOSITORY}"


def write_spec(folder: Path, **changes: object) -> Path:
    """Writes a spec of small trainings on the example's kind of data, and its images."""
    images = np.random.default_rng(0).integers(0, 255, (120, 16, 16, 3), dtype=np.uint8)
    np.savez(folder / "toy.npz", images=images, shape=np.array(["disc", "ring"] * 60))
    spec = {
        **specs.TINY,
        "name": "own",
        "data": {"kind": "arrays", "file": "toy.npz", "tasks": ["shape"]},
        "model": {"encoder": {"name": "flat", "width": 16}, "head_dim": 8},
        "method": "blend",
        "views": {"size": 16, "extra": {"name": "erase", "side": 0.5}},
        "train": {**specs.TINY["train"], "optimizer": "lion", "lr_schedule": "power", "lr": 1e-3},
        "evaluate": {"bootstrap": 20, "metrics": ["spread"]},
        "search": {
            **specs.GRID,
            "space": {"train.epochs": {"grid": [1, 4]}},
            "scheduler": {"name": "patience", "probes": 1},
        },
        "storage": {"root": "root"},
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({**spec, **changes}))
    return path


@pytest.mark.slow
def test_an_installed_package_is_known_everywhere(tmp_path: Path, installed: str) -> None:
    write_spec(tmp_path)
    words = ("-m", "mtcon_ray", "plan", "spec.yaml")
    text = run_python(*words, cwd=tmp_path, PYTHONPATH=installed).stdout
    assert "flat" in text
    assert "patience" in text
    run_python(*words, "--set", "method=margin", cwd=tmp_path, PYTHONPATH=installed)
    text = run_python("-m", "mtcon_ray", "schema", PYTHONPATH=installed).stdout
    assert all(f'"{name.removesuffix(".py")}"' in text for name in example_files())
    assert "data.kind: unknown kind 'arrays'" in refused("validate", tmp_path / "spec.yaml")


@pytest.mark.slow
@pytest.mark.usefixtures("trusting")
def test_modules_beside_specs_need_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found in the spec's folder, by a command in any folder."""
    for name, code in example_files().items():
        (tmp_path / name).write_text(code)
    modules = [name.removesuffix(".py") for name in example_files()]
    monkeypatch.delenv("MTCON_RAY_ALLOW_PLUGINS", raising=False)
    monkeypatch.setattr(plugins, "_consent", False)
    error = refused("validate", str(write_spec(tmp_path)), "--set", f"plugins={modules}")
    assert "plugins need your consent" in error
    spec = str(write_spec(tmp_path, plugins=modules))
    error = refused("validate", spec)
    told = f"plugins need your consent, because their code runs on this machine: {modules[0]}"
    assert told in error
    assert "--allow-plugins" in error
    run_python("-m", "mtcon_ray", "validate", spec, MTCON_RAY_ALLOW_PLUGINS="1")
    run_python("-c", f"import mtcon_ray as mt; mt.allow_plugins(); mt.load_spec({spec!r})")
    (tmp_path / f"{modules[0]}.py").write_text("raise RuntimeError('not today')")
    error = refused("validate", spec, "--allow-plugins")
    assert f"cannot import the plugin {modules[0]!r}: RuntimeError: not today" in error


@pytest.mark.slow
def test_the_contract_runs_on_a_plugin_s_method(tmp_path: Path, installed: str) -> None:
    """By the test file that the page shows."""
    (code,) = re.findall(r"^```python\n(from mtcon_ray.testing.*?)^```", PAGE, re.S | re.M)
    (tmp_path / "test_blend.py").write_text(code)
    words = ("-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:randomly")
    done = run_python(*words, cwd=tmp_path, PYTHONPATH=installed)
    assert len(re.findall(r"^test_blend.py::Test\w+::\w+ PASSED", done.stdout, re.M)) == 16


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test import plugins, and leaves nothing of it behind."""
    for name, value in (("_folders", []), ("_imported", []), ("_consent", True)):
        monkeypatch.setattr(plugins, name, value)
    monkeypatch.setattr(sys, "path", [*sys.path])


@pytest.mark.usefixtures("trusting")
def test_a_spec_s_modules_are_found_beside_it(tmp_path: Path) -> None:
    spec = tmp_path / "spec"
    spec.mkdir()
    (spec / "only_here.py").write_text("")
    assert plugins.import_named(["only_here", "json"], "spec", spec)
    assert not plugins.import_named(["only_here"], "spec", spec)
    assert sys.path[-1] == str(spec.resolve())
    assert plugins.versions()["only_here"].startswith("sha256:")
    del sys.modules["only_here"]


@pytest.mark.usefixtures("trusting")
def test_a_plugin_that_exits_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each command would end with exit code 0 and do nothing."""
    (tmp_path / "quits.py").write_text("import sys\nsys.exit()")
    with pytest.raises(SpecError, match=r"spec: cannot import the plugin 'quits': SystemExit"):
        plugins.import_named(["quits"], "spec", tmp_path)
    entry = EntryPoint("quits", "quits", plugins.GROUPS[0])
    monkeypatch.setattr(plugins, "installed_plugins", lambda: [entry])
    with pytest.raises(SpecError, match="import the installed plugin 'quits': SystemExit"):
        plugins.import_installed()


def test_results_are_shown_without_the_plugins(tmp_path: Path) -> None:
    folder = sweep_folder(tmp_path, "own")
    copy_stored(folder)
    spec = yaml.safe_load((folder / "spec.yaml").read_text())
    spec["model"]["encoder"] = {"name": "flat", "width": 16}
    of_plugins = {"plugins": ["absent"], "method": {"name": "blend"}}
    (folder / "spec.yaml").write_text(yaml.safe_dump({**spec, **of_plugins}))
    for words in (("list",), ("status", "own"), ("report", "own"), ("best", "own")):
        assert "own" in accepted(*words, "--root", tmp_path).output
    assert "blend" in repr(load_sweep(folder).spec)
    assert "blend on flat" in (folder / "report" / "index.html").read_text()
    with pytest.raises(Exception, match="plugins need your consent"):
        load_recorded(folder / "spec.yaml")
