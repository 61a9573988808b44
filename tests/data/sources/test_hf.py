"""Folders of Parquet and Arrow files, among them folders that `datasets` wrote."""

import json
import socket
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from mtcon_ray.data.dataset import check_dataset, open_dataset
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.row_files import split_word
from mtcon_ray.data.sources import SOURCES, DataSource
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.own import HuggingFaceSpec
from tests.data.labels import counts
from tests.data.sources.downloads import png

FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["dog", "cat"]),
        "tags": datasets.Sequence(datasets.ClassLabel(names=["big", "small", "wet"])),
        "words": datasets.Sequence(datasets.Value("string")),
        "colour": datasets.Value("string"),
        "weight": datasets.Value("float32"),
    }
)


def rows(count: int, first: int = 0) -> datasets.Dataset:
    """Returns rows whose images have the grey levels first, first + 1, ..."""
    columns = {
        "image": [{"bytes": png(first + i), "path": None} for i in range(count)],
        "label": [(first + i) % 2 for i in range(count)],
        "tags": [[0, 2] if i % 3 else [1] for i in range(count)],
        "words": [["a", "b"] if i % 2 else ["b"] for i in range(count)],
        "colour": ["red" if i % 4 < 2 else "blue" for i in range(count)],
        "weight": [i / 2 for i in range(count)],
    }
    return datasets.Dataset.from_dict(columns, features=FEATURES)


def save(folder: Path, **counts: int) -> Path:
    """Saves a split of each number of rows by `save_to_disk`."""
    parts = {name: rows(count) for name, count in counts.items()}
    datasets.DatasetDict(parts).save_to_disk(str(folder))
    return folder


def write(path: Path, data: "datasets.Dataset | pa.Table") -> Path:
    """Writes a Parquet or an Arrow file. Returns its folder."""
    table = data.data.table if isinstance(data, datasets.Dataset) else data
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".arrow":
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
    else:
        pq.write_table(table, path)
    return path.parent


def spec_of(folder: Path | str, **fields: Any) -> HuggingFaceSpec:
    raw = {"kind": "hf", "folder": str(folder), "tasks": ["label"]} | fields
    return HuggingFaceSpec.model_validate(raw)


def source_of(folder: Path, **fields: Any) -> DataSource:
    return SOURCES["hf"](spec_of(folder, **fields))


def labels(folder: Path, **fields: Any) -> LabelTable:
    return source_of(folder, **fields).read_labels()


def test_each_kind_of_label(tmp_path: Path) -> None:
    fields = {
        "tasks": ["label", "colour", "tags", "words", "weight"],
        "multi_hot": {"tags": "tags", "words": "words"},
        "continuous": ["weight"],
    }
    table = labels(save(tmp_path / "data", train=6, validation=3, test=3), **fields)
    assert table.classes == {"label": ("cat", "dog"), "colour": ("blue", "red")}
    assert table.multi_hot_names == {"tags": ("big", "small", "wet"), "words": ("a", "b")}
    train = slice(3, 9)  # splits are in the order of their names: test, train, validation
    assert table.names[2:4] == ("test 2", "train 0")
    assert table.labels["label"][train].tolist() == [1, 0] * 3
    assert table.multi_hot["tags"][train][:2].tolist() == [[0, 1, 0], [1, 0, 1]]
    assert table.continuous["weight"][train].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert table.split.tolist() == [2] * 3 + [0] * 6 + [1] * 3
    assert table.split_origin == "the files' splits test, train, validation"
    assert table.warnings == ()


@pytest.mark.parametrize("form", ["saved", "parquet [1]"])
def test_images_are_those_of_their_rows(
    tmp_path: Path, form: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither the network nor a folder of other programs is used."""
    folder = tmp_path / form
    if form == "saved":
        parts = datasets.DatasetDict(train=rows(30), test=rows(10, 30))
        parts.save_to_disk(str(folder), num_shards={"train": 3, "test": 1})
    else:
        for i in range(3):
            write(folder / f"data/train-{i:05}-of-00003.parquet", rows(10, 10 * i))
        write(folder / "data/test-00000-of-00001.parquet", rows(10, 30))
        write(folder / "data/test-00000-of-00002.parquet", rows(0))
    before = {*folder.rglob("*")}
    for name in ("HF_DATASETS_CACHE", "DOWNLOADED_DATASETS_PATH"):
        monkeypatch.setattr(datasets.config, name, tmp_path / "cache")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(socket, "socket", None)
    capfd.readouterr()
    data = open_dataset(spec_of(folder), view_size=8, store=tmp_path / "store")
    assert data.images[:, 0, 0, 0].tolist() == [*range(30, 40), *range(30)]
    assert counts(data.table, " ") == {"test": Counter(test=10), "train": Counter(train=26, val=4)}
    origin = "the files' splits test, train: test is test, val is drawn from train"
    assert data.table.split_origin == origin
    assert {*folder.rglob("*")} == before
    assert {path.name for path in tmp_path.iterdir()} == {form, "store", "temporary"}
    assert not [*(tmp_path / "temporary").iterdir()]
    assert capfd.readouterr() == ("", "")


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DataError, match=r"package datasets; .* `pip install 'mtcon-ray\[hf\]'`"):
        labels(tmp_path)


def test_one_saved_split_is_drawn_in_three(tmp_path: Path) -> None:
    rows(40).save_to_disk(str(tmp_path / "data"))
    (tmp_path / "data" / "cache-1234.arrow").write_bytes(b"of a former map()")
    (tmp_path / "data" / "state.json").write_text('{"_data_files": [{"filename": "../x.arrow"}]}')
    table = labels(tmp_path / "data", stratify=["label"])
    assert counts(table, " ") == {"train": Counter(train=28, val=4, test=8)}
    assert table.split_origin.endswith("seed 0, the same shares in each class of label")


def test_a_column_or_null_replaces_the_splits_of_the_files(tmp_path: Path) -> None:
    for name in ("train", "test"):
        data = rows(20).add_column("split", ["train", "train", "val", "test"] * 5)
        write(tmp_path / f"{name}.parquet", data)
    table = labels(tmp_path)
    assert table.split_origin == "column 'split'"
    assert counts(table, " ")["test"] == Counter(train=10, val=5, test=5)
    pooled = labels(tmp_path, split_column=None)
    assert sum(counts(pooled, " ").values(), Counter()) == Counter(train=28, val=4, test=8)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00001-8d1c3b.parquet", "train"),
        ("train_extra/data-00000-of-00001.arrow", "train_extra"),
        ("cache/cifar10-test-00000-of-00002.arrow", "test"),
        ("default/partial-train/0000.parquet", "train"),
        ("train/my_dev.2.parquet", "dev"),
        ("devices/contest.parquet", ""),
    ],
)
def test_splits_are_named_by_files_or_folders(name: str, split: str) -> None:
    assert split_word(name) == split


def test_files_of_no_split_are_left_out_and_named(tmp_path: Path) -> None:
    table = labels(save(tmp_path / "saved", train=20, test=20, train_extra=20))
    assert set(counts(table, " ")) == {"train", "test"}
    assert table.warnings[0].endswith("train_extra/data-00000-of-00001.arrow")


def test_a_row_without_bytes_is_a_bad_image(tmp_path: Path) -> None:
    """Its path is not followed: it would read any file of the machine."""
    (tmp_path / "secret.png").write_bytes(png(1))
    images: list[dict[str, Any]] = [{"bytes": png(i), "path": None} for i in range(39)]
    images.append({"bytes": None, "path": str(tmp_path / "secret.png")})
    table = pa.table({"image": images, "label": ["a", "b"] * 20})
    spec = spec_of(write(tmp_path / "data" / "a.parquet", table), max_bad_images=0.1)
    found = check_dataset(spec, 8, tmp_path / "store").table
    assert (found.split == -1).nonzero()[0].tolist() == [39]
    assert "first train 39: the row has no bytes of an image" in found.warnings[-1]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"tasks": ["labels"]}, r"must have the column 'labels' .*'label'"),
        ({"tasks": ["tags"]}, r"got lists; make it a label set by data.multi_hot"),
        ({"tasks": ["weight"]}, "got decimals; name it in data.continuous too"),
        ({"tasks": ["image"]}, r"'image' of .* must hold text, numbers, or lists of text"),
        ({"image_column": "photo"}, "must have 'photo' of images, got image; name it in"),
        ({"stratify": ["label"]}, "must go with a random split, got the files' splits"),
    ],
)
def test_columns_must_fit_the_spec(tmp_path: Path, fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        labels(save(tmp_path / "data", train=4, val=4, test=4), **fields)


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.folder must be a folder"):
        labels(tmp_path / "no")
    with pytest.raises(DataError, match="has no Parquet or Arrow files"):
        labels(tmp_path)
    for config in ("full", "small"):
        write(tmp_path / config / "train-00000-of-00001.parquet", rows(4))
    with pytest.raises(DataError, match="train files in full, train files in small; name"):
        labels(tmp_path)
    image = [{"bytes": png(0)}] * 20
    table = pa.table({"image": image, "mask": image, "label": [1] * 20})
    two = write(tmp_path / "two" / "a.parquet", table)
    with pytest.raises(DataError, match=r"one column of images, got image, mask; name it in"):
        labels(two)
    assert len(labels(two, image_column="mask")) == 20


@pytest.mark.parametrize("name", ["train.parquet", "train.arrow"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str) -> None:
    """Among them files with an offset that leads out of the file, and with other columns."""
    table = pa.table({"image": [{"bytes": b"x"}] * 9, "label": ["a" * (i + 1) for i in range(9)]})
    file = write(tmp_path / name, table) / name
    data, place = file.read_bytes(), struct.pack("<3i", 1, 3, 6)
    write(file, table.replace_schema_metadata({"huggingface": "{"}))
    for content in (
        file.read_bytes(),
        b"PAR1 cut short",
        data[:4] + bytes(100) + data[104:],
        data.replace(place, struct.pack("<3i", 1, 3, 10**7)) if name == "train.arrow" else b"",
    ):
        file.write_bytes(content)
        with pytest.raises(DataError, match=f"{name} is not a whole Parquet or Arrow file"):
            labels(tmp_path)
    write(file, table.drop_columns("label"))
    write(tmp_path / f"a_{name}", table)
    with pytest.raises(DataError, match=f"/{name} is not a whole .*label"):
        labels(tmp_path)


def test_compressed_rows_are_refused(tmp_path: Path) -> None:
    """They may unpack to a thousand times the size of the file."""
    table, options = rows(50).data.table, pa.ipc.IpcWriteOptions(compression="zstd")
    table = table.append_column("zeros", pa.array([bytes(100_000)] * 50))
    with pa.ipc.new_stream(str(tmp_path / "train.arrow"), table.schema, options=options) as writer:
        writer.write_table(table)
    with pytest.raises(DataError, match="has compressed rows, which are not read"):
        labels(tmp_path)


def test_a_url_is_a_folder() -> None:
    assert spec_of("s3://bucket/animals/").urls() == {"folder": "s3://bucket/animals/"}
    with pytest.raises(ValidationError, match="folder must end in /"):
        spec_of("s3://bucket/animals")


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """Except in the hub's cache, where the files of a revision are links to blobs."""
    for place in ("other/snapshots/1234", "datasets--user--name/snapshots/1234"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        write(folder / "../../blobs/5678", rows(10))
        (folder / "train.parquet").symlink_to("../../blobs/5678")
    assert len(labels(folder)) == 10
    with pytest.raises(DataError, match=r"the link train\.parquet leads out of data\.folder"):
        labels(tmp_path / "other/snapshots/1234")


def test_names_with_the_separator_are_refused(tmp_path: Path) -> None:
    data = {"image": [{"bytes": png(0)}] * 4, "tags": [["a|b"], ["c"]] * 2}
    folder = write(tmp_path / "a.parquet", pa.table(data))
    with pytest.raises(DataError, match=r"must not hold \|, which separates them, got 'a\|b'"):
        labels(folder, tasks=["tags"], multi_hot={"tags": "tags"})


def test_a_replaced_file_is_other_content(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", rows(20))
    before, again = (source_of(tmp_path).content_key() for _ in range(2))
    write(tmp_path / "a.parquet", rows(20, 1))
    assert before == again != source_of(tmp_path).content_key()


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_missing_labels(tmp_path: Path, name: str) -> None:
    columns = {
        "picture": pa.array([{"bytes": png(i)} for i in range(4)]),
        "label": [1, -1, None, 0],
        "colour": pa.array(["red", None, "blue", "red"]).dictionary_encode(),
    }
    known = {"label": {"names": ["dog", "cat"], "_type": "ClassLabel"}}
    metadata = {"huggingface": json.dumps({"info": {"features": known}})}
    folder = write(tmp_path / name, pa.table(columns, metadata=metadata))
    table = labels(folder, tasks=["label", "colour"])
    assert table.labels["label"].tolist() == [0, -1, -1, 1]
    assert table.labels["colour"].tolist() == [1, -1, 0, 1]
