"""Images in folders named after their classes."""

import errno
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError
from tests.data.archives import pack
from tests.data.sources.downloads import save_image

SHAPES = ("disc", "ring")


def make(root: Path, *folders: str, count: int = 10) -> Path:
    """Writes `count` images into each folder, of one grey level per image."""
    for place, folder in enumerate(folders):
        for i in range(count):
            save_image(root / folder / f"{i}.png", (place * count + i) % 256)
    return root


def labels(images: Path, **fields: Any) -> LabelTable:
    raw = {"kind": "folder", "images": str(images), "tasks": ["shape"]} | fields
    return SOURCES["folder"](SOURCES["folder"].Spec.model_validate(raw)).read_labels()


def counts(table: LabelTable) -> dict[str, Counter[str]]:
    """Returns the number of items of each split, by the folder of their images."""
    found: dict[str, Counter[str]] = {}
    for name, split in zip(table.names, table.split, strict=True):
        found.setdefault(name.rpartition("/")[0], Counter())[SPLITS[split]] += 1
    return found


def test_a_class_per_folder_with_the_same_shares_of_each(tmp_path: Path) -> None:
    table = labels(make(tmp_path, *SHAPES))
    assert table.classes == {"shape": SHAPES}
    assert table.labels["shape"].tolist() == [0] * 10 + [1] * 10
    assert counts(table) == {shape: Counter(train=7, val=1, test=2) for shape in SHAPES}
    assert table.split_origin.startswith("drawn at random from seed 0, the same shares")
    assert (labels(tmp_path, seed=1).split != table.split).any()


def test_spellings_of_one_class_are_warned_of(tmp_path: Path) -> None:
    (warning,) = labels(make(tmp_path, "Cat", "cat", "dog")).warnings
    images = "'Cat' (10 rows, first image Cat/0.png) and 'cat' (10 rows, first image cat/0.png)"
    assert warning.startswith(f"label column 'shape': {images} count as ")


def test_a_task_per_level(tmp_path: Path) -> None:
    make(tmp_path, "boots/red", "boots/blue", "sandals/red")
    table = labels(tmp_path, tasks=["shoe"], held_out=["colour"])
    assert table.classes == {"shoe": ("boots", "sandals"), "colour": ("blue", "red")}
    assert table.labels["colour"].tolist() == [0] * 10 + [1] * 20
    assert set(labels(tmp_path, tasks=["colour"], levels=["shoe", "colour"]).classes) == {"colour"}


TOP_FOLDERS = [
    ("train valid test", "test, train, valid", {"train": {"train": 8}, "valid": {"val": 8}}),
    ("train val", "train, val: val is test, val is drawn from train", {"val": {"test": 8}}),
    ("train test", "test, train: test is test, val is drawn from train", {"test": {"test": 8}}),
]


@pytest.mark.parametrize(("tops", "origin", "others"), TOP_FOLDERS)
def test_top_folders_may_be_the_splits(tmp_path: Path, tops: str, origin: str, others: Any) -> None:
    """If two splits exist, the second is test, and val is drawn from train."""
    make(tmp_path, *(f"{top}/{shape}" for top in tops.split() for shape in SHAPES), count=8)
    table = labels(tmp_path)
    assert (table.classes, table.split_origin) == ({"shape": SHAPES}, f"the folders {origin}")
    for shape in SHAPES:
        for top, expected in ({"train": {"train": 7, "val": 1}} | others).items():
            assert counts(table)[f"{top}/{shape}"] == expected


def test_without_labels_images_may_lie_at_any_depth(tmp_path: Path) -> None:
    make(tmp_path, ".", "a", "a/b", count=10)
    table = labels(tmp_path, tasks=[])
    assert (len(table), table.labels) == (30, {})
    assert Counter(table.split.tolist()) == {0: 21, 1: 3, 2: 6}
    assert table.split_origin == "drawn at random from seed 0, the same shares in each folder"


@pytest.mark.parametrize("target", ["../pool/c", "disc", "gone"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_linked_class_is_refused(tmp_path: Path, target: str, packed: bool) -> None:
    """Its images would be missing without a word, wherever the link leads."""
    images = make(tmp_path / "images", *SHAPES)
    make(tmp_path / "pool" / "c", ".")
    (images / ".hidden").symlink_to("disc")
    (images / "notes.txt").symlink_to("disc/0.png")
    pack(images, tmp_path / "whole.tar")
    assert labels(tmp_path / "whole.tar" if packed else images).classes == {"shape": SHAPES}
    (images / "tile").symlink_to(target)
    pack(images, tmp_path / "linked.tar")
    with pytest.raises(DataError, match=f"not links to folders, got 'tile', a link to '{target}'"):
        labels(tmp_path / "linked.tar" if packed else images)


def test_an_unreadable_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, *SHAPES)
    real = os.scandir

    def refuse(path: Path) -> Any:
        if Path(path).name == "ring":
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"cannot list the folder .*ring: Permiss"):
        labels(tmp_path)


def test_other_files_and_folders_are_left_out_and_named(tmp_path: Path) -> None:
    """Files with a hidden name are left out without a warning."""
    flat = make(tmp_path / "flat", *SHAPES, ".ipynb_checkpoints", "__MACOSX/disc", count=3)
    for name in ("Thumbs.db", "._0.png"):
        (flat / "disc" / name).write_text("")
    table = labels(flat)
    assert table.classes == {"shape": SHAPES}
    files = ".ipynb_checkpoints/*.png (3), __MACOSX/disc/*.png (3), disc/*.db (1)"
    told = f"7 files of {flat} are left out (they are not images, in hidden folders): {files}"
    assert table.warnings == (told,)
    splits = [f"{split}/{shape}" for split in ("training_set", "val") for shape in SHAPES]
    images = make(tmp_path / "split", *splits, "new", ".ipynb_checkpoints/x", count=3)
    save_image(images / "val" / "ring" / "0.avif", 9)
    save_image(images / "0.png", 9)
    table = labels(images)
    assert counts(table)["val/ring"] == Counter(test=4)
    reasons = "not images, in hidden folders or beside training_set, val"
    files = ".ipynb_checkpoints/x/*.png (3), new/*.png (3), ./*.png (1)"
    assert table.warnings == (f"7 files of {images} are left out (they are {reasons}): {files}",)


OTHER_DEPTHS = [
    (["."], "must lie in folders shape, got 0.png; name every level"),
    (["a/b", "a/c"], r"got a/b/0.png; name every level of folders in data.levels"),
    (["train/a/b", "val/c"], r"folders \{train,val\}/shape, got train/a/b/0.png"),
    ([], r"data\.images not found: .* does not exist"),
]


@pytest.mark.parametrize(("folders", "rule"), OTHER_DEPTHS)
def test_images_at_another_depth_are_refused(tmp_path: Path, folders: list[str], rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        labels(make(tmp_path / "images", *folders))
