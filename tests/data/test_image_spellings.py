"""Tests of tables that name images in other ways than their files, and of linked images."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mtcon_ray.errors import DataError
from tests.data.labels import labels_of
from tests.data.test_image_check import warnings_of


def test_one_image_has_one_name(files: Any, tmp_path: Path) -> None:
    """Repeats and leaks are found in any spelling of a path; each image counts once."""
    again = files.frame.iloc[:6].copy()
    again["image"] = [
        "./0.jpg",
        "a/../1.jpg",
        ".//2.jpg",
        f"{files.images}/3.jpg",
        "4.jpg",
        "5.jpg",
    ]
    again["split"] = ["test", "val", "train", "val", "test", "val"]
    third = again.iloc[:1].assign(split="val")
    (files.images / "a").mkdir()
    files.frame = pd.concat([files.frame, again, third], ignore_index=True)
    assert warnings_of(files.spec(), tmp_path) == (
        f"7 rows of {files.csv} repeat the image of another row",
        "3 images are in more than one split: accuracies will be too high",
    )


@pytest.mark.parametrize("name", ["/home/me/pictures/{}", "../{}"])
def test_a_path_of_another_machine_gets_a_hint(files: Any, name: str) -> None:
    files.frame["image"] = [name.format(row) for row in files.frame["image"]]
    with pytest.raises(DataError, match=r"in row 2\n'.*0\.jpg' exists as '0\.jpg': column"):
        labels_of(files.spec())


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_that_leads_out_is_named(files: Any, tmp_path: Path, linked: str) -> None:
    """Caches of DVC, git-annex and datalad look so."""
    cache = tmp_path / "cache"
    files.images.rename(cache)
    files.images.mkdir()
    if linked == "folder":
        (files.images / "sub").symlink_to(cache)
        files.frame["image"] = "sub/" + files.frame["image"]
    else:
        for image in cache.iterdir():
            (files.images / image.name).symlink_to(image)
    link, target = ("sub", cache) if linked == "folder" else ("0.jpg", cache / "0.jpg")
    with pytest.raises(DataError, match=f"in row 2, where {link} is a link to {target}; name the"):
        labels_of(files.spec())
