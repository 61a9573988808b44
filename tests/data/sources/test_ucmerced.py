"""Tests of UC Merced, on a small tree as the archives unpack."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.errors import DataError
from tests.data.sources.downloads import save_image, source_of, write_text

LABELS = ("airplane", "bare-soil", "buildings", "cars")


def make(root: Path, labels_folder: str = "") -> Path:
    """Writes 20 images of each of three uses as TIFF; image i has the bits of the number i."""
    names = [f"{use}{i:02}" for use in ("agricultural", "airplane", "river") for i in range(20)]
    rows = []
    for i, name in enumerate(names):
        bits = [str(i % 16 >> bit & 1) for bit in range(4)]
        rows.append("\t".join([name, *bits]))
        save_image(
            root / "UCMerced_LandUse" / "Images" / name[:-2] / f"{name}.tif", 4 * i, (16, 16)
        )
    header = "IMAGE\\LABEL\t" + "\t".join(LABELS)
    write_text(root / labels_folder / "LandUse_Multilabeled.txt", header, *rows, end="\r\n")
    return root


def labels(root: Path, **fields: Any) -> LabelTable:
    return source_of("ucmerced", root, **fields).read_labels()


def test_a_set_of_labels_and_the_use_of_the_land(tmp_path: Path) -> None:
    table = labels(make(tmp_path))
    assert table.multi_hot_names == {"labels": LABELS}
    assert table.multi_hot["labels"][:4].tolist() == [
        [0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0],
    ]  # fmt: skip
    assert table.classes == {"land_use": ("agricultural", "airplane", "river")}
    assert table.labels["land_use"].tolist() == [0] * 20 + [1] * 20 + [2] * 20


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    table = labels(make(tmp_path), tasks=["land_use"], held_out=[])
    assert table.multi_hot == {}
    assert set(table.labels) == {"land_use"}
    assert labels(tmp_path, held_out=[]).labels == {}


def test_the_split_has_each_use_in_the_same_shares(tmp_path: Path) -> None:
    split = labels(make(tmp_path)).split
    assert [np.bincount(part).tolist() for part in split.reshape(3, 20)] == [[14, 2, 4]] * 3
    assert (labels(tmp_path, seed=1).split != split).any()
    assert (split[:20] != split[20:40]).any()


@pytest.mark.parametrize("folder", ["UCMerced_LandUse", "multilabels"])
def test_tiffs_are_read_and_the_labels_may_lie_elsewhere(tmp_path: Path, folder: str) -> None:
    source = source_of("ucmerced", make(tmp_path, folder))
    images, bad = source.decode(range(60), 8)
    assert images.mean(axis=(1, 2, 3)).tolist() == list(range(0, 240, 4))
    assert bad == {}
    assert source.check_images(8) == ({}, "")


def test_another_value_than_0_and_1_is_refused(tmp_path: Path) -> None:
    path = make(tmp_path) / "LandUse_Multilabeled.txt"
    path.write_text(path.read_text().replace("river03\t", "river03\t2"))
    with pytest.raises(
        DataError, match=r"column 'airplane' .* hold 0 and 1, .* or nothing, got '2"
    ):
        labels(tmp_path)
