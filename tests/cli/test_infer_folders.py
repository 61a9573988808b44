"""`init` with a folder or tar alone, whose folders are the classes."""

import tarfile
from pathlib import Path

import pytest

from mtcon_ray.spec.run_spec import load_spec
from tests.cli.conftest import refused, run
from tests.data.sources.downloads import save_image


def make(root: Path, *folders: str) -> Path:
    for folder in folders:
        for i in range(20):
            save_image(root / folder / f"{i}.png", 10 * i)
    return root


def test_a_folder_per_class(tmp_path: Path) -> None:
    images = make(tmp_path / "My Flowers", "daisy", "rose")
    (images / "rose" / "1.heic").touch()
    done = run("init", images, "-o", tmp_path / "spec.yaml")
    assert done.exit_code == 0, done.stderr
    assert f"warning: 1 files of {images} are left out (they are not images" in done.stderr
    assert "  tasks     class (2 classes)\n" in done.stdout
    assert "  splits    drawn at random from seed 0" in done.stdout
    spec = load_spec(tmp_path / "spec.yaml")
    assert (spec.name, spec.data.kind, spec.data.tasks) == ("my-flowers", "folder", ("class",))
    assert spec.train.batch_size == 8


def test_a_label_per_level_below_the_splits(tmp_path: Path) -> None:
    folders = [f"{s}/{a}/{b}" for s in ("train", "val", "test") for a in "ab" for b in "cd"]
    make(tmp_path / "images", *folders)
    with tarfile.open(tmp_path / "images.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "images", arcname=".")
    done = run("init", tmp_path / "images.tar.gz", "-o", tmp_path / "spec.yaml")
    assert done.exit_code == 0, done.stderr
    assert "  splits    the folders test, train, val\n" in done.stdout
    spec = load_spec(tmp_path / "spec.yaml")
    assert (spec.name, spec.data.tasks) == ("images", ("level_1", "level_2"))


@pytest.mark.parametrize(
    ("folders", "told"),
    [
        (["."], "must lie in folders named after their classes, got 0.png; give a CSV"),
        ([], "has no images (files ending in JPEG, PNG, "),
        (["a", "b/c"], "must lie in folders class, got b/c/0.png"),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, folders: list[str], told: str) -> None:
    (tmp_path / "images").mkdir()
    images = make(tmp_path / "images", *folders)
    assert told in refused("init", images, "-o", tmp_path / "spec.yaml")
    assert not (tmp_path / "spec.yaml").exists()
