"""Example files from a checkout, and from the place where a wheel has them."""

from pathlib import Path

import pytest

from mtcon_ray.cli import example_files, run_commands
from mtcon_ray.cli.example_files import FOLDERS, SYNTHETIC, example_file
from mtcon_ray.spec.run_spec import load_spec
from tests.cli.conftest import accepted, refused, run

REPOSITORY = Path(__file__).parents[2]


def test_a_wheel_s_files_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert example_file(SYNTHETIC) == REPOSITORY / SYNTHETIC
    monkeypatch.setattr(example_files, "PACKAGE", tmp_path / "mtcon_ray")
    assert f"lacks the example files: there is no {SYNTHETIC}" in refused("demo")
    beside, inside = tmp_path / SYNTHETIC, tmp_path / "mtcon_ray" / "example_files" / SYNTHETIC
    for path in (beside, inside):
        path.parent.mkdir(parents=True)
        path.touch()
        assert example_file(SYNTHETIC) == path


def test_demo_sweeps_the_spec_of_init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = run("init", "--synthetic", "-o", path := tmp_path / "my spec.yaml").stdout
    assert said.startswith(f"wrote {path}\n  items ")
    assert f"mtcon-ray sweep '{path}'" in said
    assert load_spec(path) == load_spec(REPOSITORY / SYNTHETIC)
    started = []
    monkeypatch.setattr(run_commands, "run", lambda *where, **given: started.append((where, given)))
    words = ("--set", "train.epochs=5", "--root", tmp_path, "--name", "mine", "--resume")
    accepted("demo", *words)
    where = (load_spec(path, ["train.epochs=5"]), tmp_path)
    assert started == [(where, {"name": "mine", "resume": True})]


@pytest.mark.parametrize("words", [(), ("labels.csv",), ("labels.csv", "images", "--synthetic")])
def test_init_describes_files_or_the_demo(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--synthetic" in refused("init", *words)
    assert list(tmp_path.iterdir()) == []


def test_examples_are_copied_once(tmp_path: Path) -> None:
    done = accepted("examples", tmp_path / "new")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(FOLDERS)
    for name in ("cluster/kuberay/cluster.yaml", "examples/training_loop.py", SYNTHETIC):
        assert (tmp_path / "new" / name).read_bytes() == (REPOSITORY / name).read_bytes()
        assert str(tmp_path / "new" / name.partition("/")[0]) in done.stdout
    assert not list(tmp_path.rglob("__pycache__"))
    (tmp_path / "new" / "cluster" / "README.md").write_text("mine")
    assert f"{tmp_path / 'new' / 'cluster'} exists already" in refused("examples", tmp_path / "new")
    assert (tmp_path / "new" / "cluster" / "README.md").read_text() == "mine"
    (tmp_path / "file").touch()
    assert "cannot use the file " in run("examples", tmp_path / "file").stderr
