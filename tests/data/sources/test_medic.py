"""Tests of MEDIC, on a small tree as the official archive unpacks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.image_files import UnreadableImageError
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.errors import DataError
from tests.data.sources.downloads import save_image, source_of, write_text

COLUMNS = (
    "image_id", "event_name", "image_path", "damage_severity", "informative", "humanitarian",
    "disaster_types",
)  # fmt: skip
ROWS = {
    "train": [
        "1\tflood's\tdata/aidr_info/a/1.jpg\tsevere\tinformative\tnot_humanitarian\tflood",
        '2\t"quoted"\tdata/crisismmd/NA.jpg\tmild\tinformative\t\tfire',
        "3\t\tdata/crisismmd/3.png\tlittle_or_none\tnot_informative\tnot_humanitarian\tnot_disaster",
    ],
    "dev": ["4\tx\tdata/crisismmd/4.jpg\tmild\tinformative\tnot_humanitarian\tflood"],
    "test": ["5\tx\tdata/crisismmd/5.jpg\t\tnot_informative\tnot_humanitarian\tfire"],
}


def make(root: Path, end: str = "\n") -> Path:
    for level, (split, rows) in enumerate(ROWS.items(), 1):
        write_text(root / f"MEDIC_{split}.tsv", "\t".join(COLUMNS), *rows, end=end)
        for row in rows:
            save_image(root / row.split("\t")[2], 50 * level)
    return root


def labels(root: Path, **fields: Any) -> LabelTable:
    return source_of("medic", root, **fields).read_labels()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_four_labels_in_the_published_splits(tmp_path: Path, end: str) -> None:
    """An empty cell is missing; the other classes are in sorted order, as in the authors' code."""
    table = labels(make(tmp_path, end))
    assert table.split.tolist() == [0, 0, 0, 1, 2]
    assert table.classes["damage_severity"] == ("little_or_none", "mild", "severe")
    assert table.labels["damage_severity"].tolist() == [2, 1, 0, 1, -1]
    assert table.labels["humanitarian"].tolist() == [0, -1, 0, 0, 0]
    assert table.classes["disaster_types"] == ("fire", "flood", "not_disaster")
    assert table.names[1] == "crisismmd/NA.jpg"
    assert table.warnings == ()


def test_any_label_may_be_held_out(tmp_path: Path) -> None:
    tasks = ["damage_severity", "informative", "disaster_types"]
    source = source_of("medic", make(tmp_path), tasks=tasks, held_out=["humanitarian"])
    assert set(source.read_labels().classes) == {*tasks, "humanitarian"}


def test_tables_may_lie_among_the_images(tmp_path: Path) -> None:
    """The authors' code reads data/train.tsv, data/dev.tsv and data/test.tsv."""
    before = labels(make(tmp_path)).labels["informative"]
    for split in ROWS:
        (tmp_path / f"MEDIC_{split}.tsv").rename(tmp_path / "data" / f"{split}.tsv")
    assert (labels(tmp_path).labels["informative"] == before).all()


def test_words_for_nothing_are_doubted(tmp_path: Path) -> None:
    make(tmp_path)
    table = tmp_path / "MEDIC_dev.tsv"
    table.write_text(table.read_text().replace("\tflood", "\tnan"))
    (warning,) = labels(tmp_path).warnings
    assert warning.startswith(
        "label column 'disaster_types': 'nan' (1 rows, first row 2 of MEDIC_dev"
    )


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/etc/x.jpg", "must begin with data/, got '/etc/x.jpg' in row 2"),
        ("data/../../x.jpg", "must name files inside .*, got '../../x.jpg'"),
    ],
)
def test_a_path_that_leads_outside_is_refused(tmp_path: Path, path: str, message: str) -> None:
    table = make(tmp_path) / "MEDIC_dev.tsv"
    table.write_text(table.read_text().replace("data/crisismmd/4.jpg", path))
    with pytest.raises(DataError, match=f"MEDIC_dev.tsv {message}"):
        labels(tmp_path)


def test_a_truncated_jpeg_is_used_with_grey_for_the_rest(tmp_path: Path) -> None:
    """Half of a bright image is decoded; with allow_truncated: false it counts as corrupt."""
    make(tmp_path)
    path = tmp_path / "data" / "crisismmd" / "4.jpg"
    noise = np.random.default_rng(0).integers(200, 256, size=(256, 256, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, quality=95)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    source = source_of("medic", tmp_path)
    images, bad = source.decode(range(5), 64)
    assert bad == {}
    assert images[3][:20].min() > 150
    assert (images[3][-8:] == 128).all()
    strict = source_of("medic", tmp_path, allow_truncated=False)
    assert strict.decode([3], 64)[1][3].startswith("crisismmd/4.jpg: image file is truncated")
    assert strict.content_key() != source.content_key()
    path.write_bytes(whole)
    assert (source.decode([3], 64)[0] == strict.decode([3], 64)[0]).all()


def test_a_truncated_header_is_corrupt(tmp_path: Path) -> None:
    save_image(tmp_path / "x.jpg", 7)
    with pytest.raises(UnreadableImageError):
        decode_image((tmp_path / "x.jpg").read_bytes()[:100], 8, allow_truncated=True)


def test_missing_parts_and_other_counts_are_named(tmp_path: Path) -> None:
    source = source_of("medic", make(tmp_path))
    assert source.missing() == []
    assert source.differences(source.read_labels()) == [
        "5 images, where 71,198 are published",
        "3 train images, where 49,353 are published",
        "1 val images, where 6,157 are published",
        "1 test images, where 15,688 are published",
        "1 classes of humanitarian, where 4 are published",
        "3 classes of disaster_types, where 7 are published",
    ]
    (tmp_path / "MEDIC_dev.tsv").unlink()
    (line,) = source.missing()
    assert line.startswith("val labels: MEDIC_dev.tsv or dev.tsv or data/MEDIC_dev.tsv or ")
    assert line.endswith("from MEDIC.tar.gz of https://crisisnlp.qcri.org/medic/")
