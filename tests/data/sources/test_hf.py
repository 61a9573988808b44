"""Folders that Hugging Face's package `datasets` wrote, read without that package."""

import json
import sys
from collections import Counter
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pydantic import ValidationError

from mtcon_ray.data.dataset import check_dataset, open_dataset
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.shards import split_word
from mtcon_ray.data.sources import SOURCES, DataSource, DataSpec
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError

FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["dog", "cat"]),
        "tags": datasets.Sequence(datasets.ClassLabel(names=["big", "small", "wet"])),
        "words": datasets.Sequence(datasets.Value("string")),
        "colour": datasets.Value("string"),
        "weight": datasets.Value("float32"),
        "year": datasets.Value("int64"),
    }
)


def png(level: int) -> bytes:
    buffer = BytesIO()
    Image.fromarray(np.full((9, 12, 3), level, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def rows(count: int, first: int = 0) -> datasets.Dataset:
    """Returns rows whose images have the grey levels first, first + 1, ..."""
    columns = {
        "image": [{"bytes": png(first + i), "path": None} for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "tags": [[0, 2] if i % 3 else [1] for i in range(count)],
        "words": [["a", "b"] if i % 2 else ["b"] for i in range(count)],
        "colour": ["red" if i % 4 < 2 else "blue" for i in range(count)],
        "weight": [i / 2 for i in range(count)],
        "year": [2000 + i % 3 for i in range(count)],
    }
    return datasets.Dataset.from_dict(columns, features=FEATURES)


def save(folder: Path, **counts: int) -> Path:
    """Saves a split of each number of rows by `save_to_disk`; levels count on over the splits."""
    first = np.cumsum([0, *counts.values()])
    parts = {
        name: rows(count, int(start))
        for (name, count), start in zip(counts.items(), first, strict=False)
    }
    datasets.DatasetDict(parts).save_to_disk(str(folder))
    return folder


def write(path: Path, data: datasets.Dataset, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data.to_parquet(str(path), **options)


def spec_of(folder: Path | str, **fields: Any) -> DataSpec:
    raw = {"kind": "hf", "folder": str(folder), "tasks": ["label"]} | fields
    return SOURCES["hf"].Spec.model_validate(raw)


def source_of(folder: Path, **fields: Any) -> DataSource:
    return SOURCES["hf"](spec_of(folder, **fields))


def labels(folder: Path, **fields: Any) -> LabelTable:
    return source_of(folder, **fields).read_labels()


def counts(table: LabelTable) -> dict[str, Counter[str]]:
    """Returns the number of rows of each split of the files in each of ours."""
    found: dict[str, Counter[str]] = {}
    for name, split in zip(table.names, table.split, strict=True):
        found.setdefault(name.rpartition(" ")[0], Counter())[SPLITS[split]] += 1
    return found


def test_each_kind_of_label(tmp_path: Path) -> None:
    fields = {
        "tasks": ["label", "colour", "year", "tags", "words", "weight"],
        "multi_hot": {"tags": "tags", "words": "words"},
        "continuous": ["weight"],
    }
    table = labels(save(tmp_path / "data", train=6, validation=3, test=3), **fields)
    assert table.classes == {
        "label": ("cat", "dog"),
        "colour": ("blue", "red"),
        "year": ("2000", "2001", "2002"),
    }
    assert table.multi_hot_names == {"tags": ("big", "small", "wet"), "words": ("a", "b")}
    train = slice(3, 9)  # splits are in the order of their names: test, train, validation
    assert table.names[2:4] == ("test 2", "train 0")
    assert table.labels["label"][train].tolist() == [1, 0] * 3
    assert table.multi_hot["tags"][train][:2].tolist() == [[0, 1, 0], [1, 0, 1]]
    assert table.continuous["weight"][train].tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert table.split.tolist() == [2] * 3 + [0] * 6 + [1] * 3
    assert table.split_origin == "the files' splits test, train, validation"
    assert table.warnings == ()


@pytest.mark.parametrize("form", ["saved", "parquet"])
def test_images_are_those_of_their_rows(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "data"
    if form == "saved":
        datasets.DatasetDict(train=rows(30), test=rows(10, 30)).save_to_disk(
            str(folder), num_shards={"train": 3, "test": 1}
        )
    else:
        for i in range(3):  # two groups of rows in each
            part = rows(30).select(range(10 * i, 10 * i + 10))
            write(folder / f"data/train-{i:05}-of-00003.parquet", part, batch_size=6)
        write(folder / "data/test-00000-of-00001.parquet", rows(10, 30))
    data = open_dataset(spec_of(folder), view_size=8, store=tmp_path / "store")
    assert data.images[:, 0, 0, 0].tolist() == [*range(30, 40), *range(30)]
    assert counts(data.table) == {"test": Counter(test=10), "train": Counter(train=26, val=4)}
    assert data.table.split_origin == (
        "the files' splits test, train: test is test, val of train is drawn at random from seed 0"
    )


def test_labels_are_read_without_the_package_and_without_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "data", train=6, validation=3, test=3)
    monkeypatch.setitem(sys.modules, "datasets", None)
    source = source_of(tmp_path / "data")
    monkeypatch.setattr(type(source.files), "loaded", None)  # type: ignore[attr-defined]
    assert len(source.read_labels()) == 12


def test_one_saved_split_is_drawn_in_three(tmp_path: Path) -> None:
    rows(40).save_to_disk(str(tmp_path / "data"))
    (tmp_path / "data" / "cache-1234.arrow").write_bytes(b"of a former map()")
    table = labels(tmp_path / "data", stratify=["label"])
    assert counts(table) == {"train": Counter(train=28, val=4, test=8)}
    assert table.split_origin.endswith("seed 0, the same shares in each class of label")


def test_a_column_or_null_replaces_the_splits_of_the_files(tmp_path: Path) -> None:
    data = rows(20).add_column("part", ["train", "train", "val", "test"] * 5)
    for folder, column in (("a", "part"), ("b", "split")):
        for name in ("train", "test"):
            write(tmp_path / folder / f"{name}.parquet", data.rename_columns({"part": column}))
    table = labels(tmp_path / "a", split_column="part")
    assert counts(table)["test"] == Counter(train=10, val=5, test=5)
    assert labels(tmp_path / "b").split_origin == "column 'split'"
    pooled = labels(tmp_path / "b", split_column=None)
    assert sum(counts(pooled).values(), Counter()) == Counter(train=28, val=4, test=8)


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("data/train-00000-of-00001-8d1c3b.parquet", "train"),
        ("data/train_extra-00000-of-00001.parquet", "train_extra"),
        ("cache/cifar10-test-00000-of-00002.arrow", "test"),
        ("validation/data-00000-of-00001.arrow", "validation"),
        ("default/partial-train/0000.parquet", "train"),
        ("my_dev.2.parquet", "dev"),
        ("devices/contest.parquet", ""),
    ],
)
def test_splits_are_named_by_files_or_folders(name: str, split: str) -> None:
    assert split_word(name) == split


def test_files_of_no_split_are_left_out_and_named(tmp_path: Path) -> None:
    for split in ("train", "test", "extra", "train_extra"):
        write(tmp_path / f"data/{split}-00000-of-00001.parquet", rows(20))
    table = labels(tmp_path)
    assert set(counts(table)) == {"train", "test"}
    (warning,) = table.warnings
    assert warning.startswith("2 files of")
    assert "data/extra-00000-of-00001.parquet" in warning
    saved = labels(save(tmp_path / "saved", train=20, test=20, train_extra=20))
    assert set(counts(saved)) == {"train", "test"}


def test_a_row_without_bytes_is_a_bad_image(tmp_path: Path) -> None:
    """Its path is not followed: it would read any file of the machine."""
    secret = tmp_path / "secret.png"
    secret.write_bytes(png(1))
    images: list[dict[str, Any]] = [{"bytes": png(i), "path": None} for i in range(39)]
    images.append({"bytes": None, "path": str(secret)})
    columns = {"image": images, "label": ["a", "b"] * 20}
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "data" / "a.parquet")
    spec = spec_of(tmp_path / "data", max_bad_images=0.1)
    table = check_dataset(spec, 8, tmp_path / "store").table
    assert (table.split == -1).nonzero()[0].tolist() == [39]
    assert "first train 39: the row has no bytes of an image" in table.warnings[-1]


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"tasks": ["labels"]}, r"must have the column 'labels' that data\.tasks .*'label'"),
        ({"tasks": ["tags"]}, r"got lists; make it a label set by data.multi_hot: \{tags: tags\}"),
        ({"tasks": ["weight"]}, "got decimals; name it in data.continuous too"),
        ({"tasks": ["image"]}, r"data\.tasks names, must hold text, numbers, or lists of text"),
        ({"image_column": "colour"}, "must hold encoded images, got string"),
        ({"image_column": "photo"}, r"must have the column 'photo' that data\.image_column"),
        ({"stratify": ["label"]}, "must go with a random split, got the files' splits"),
    ],
)
def test_columns_must_fit_the_spec(tmp_path: Path, fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(DataError, match=rule):
        labels(save(tmp_path / "data", train=4, val=4, test=4), **fields)


def test_two_columns_of_images_need_a_name(tmp_path: Path) -> None:
    data = rows(20)
    both = datasets.concatenate_datasets(
        [data, data.select_columns("image").rename_column("image", "mask")], axis=1
    )
    write(tmp_path / "a.parquet", both)
    with pytest.raises(DataError, match=r"one column of images, got image, mask; name it in"):
        labels(tmp_path)
    assert len(labels(tmp_path, image_column="mask")) == 20


def test_two_data_sets_in_one_folder_are_refused(tmp_path: Path) -> None:
    for config in ("full", "small"):
        write(tmp_path / config / "train-00000-of-00001.parquet", rows(4))
    with pytest.raises(DataError, match=r"train files are in full and in small; name"):
        labels(tmp_path)
    write(tmp_path / "other" / "train.parquet", rows(4))
    write(tmp_path / "other" / "test.parquet", rows(4).remove_columns("year"))
    with pytest.raises(DataError, match=r"must have the same columns, got .* in test\.parquet"):
        labels(tmp_path / "other")


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.folder must be a folder"):
        labels(tmp_path / "no")
    with pytest.raises(DataError, match="has no Parquet or Arrow files"):
        labels(tmp_path)
    for name in ("train.parquet", "train.arrow"):
        (tmp_path / name).write_bytes(b"PAR1 cut short")
        with pytest.raises(DataError, match=f"{name} is not a whole Parquet or Arrow file"):
            labels(tmp_path)
        (tmp_path / name).unlink()
    (tmp_path / "state.json").write_text('{"_data_files": [{"filename": "../x.arrow"}]}')
    with pytest.raises(DataError, match=r"names '\.\./x\.arrow', which leads out of"):
        labels(tmp_path)
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(DataError, match=r"state\.json does not list the files of `save_to_disk`"):
        labels(tmp_path)


def test_a_url_is_a_folder() -> None:
    assert spec_of("s3://bucket/animals/").urls() == {"folder": "s3://bucket/animals/"}
    with pytest.raises(
        ValidationError, match="folder must end in /, because it is a folder, got s3"
    ):
        spec_of("s3://bucket/animals")


def test_a_link_that_leads_out_is_refused(tmp_path: Path) -> None:
    """Except in the hub's cache, where the files of a revision are links to blobs."""
    write(tmp_path / "elsewhere.parquet", rows(10))
    for name in ("train", "validation", "test"):
        write(tmp_path / f"data/{name}.parquet", rows(10))
    (tmp_path / "data/train.parquet").unlink()
    (tmp_path / "data/train.parquet").symlink_to(tmp_path / "elsewhere.parquet")
    with pytest.raises(DataError, match=r"the link train\.parquet leads out of data\.folder"):
        labels(tmp_path / "data")
    hub = tmp_path / "datasets--user--name"
    (hub / "blobs").mkdir(parents=True)
    (hub / "snapshots/1234").mkdir(parents=True)
    for name in ("train", "validation", "test"):
        write(hub / "blobs" / name, rows(10))
        (hub / f"snapshots/1234/{name}.parquet").symlink_to(f"../../blobs/{name}")
    assert len(labels(hub / "snapshots/1234")) == 30


def test_names_with_the_separator_are_refused(tmp_path: Path) -> None:
    data = {"image": [{"bytes": png(0)}] * 4, "tags": [["a|b"], ["c"]] * 2}
    pq.write_table(pa.table(data), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"must not hold \|, which separates them, got 'a\|b'"):
        labels(tmp_path, tasks=["tags"], multi_hot={"tags": "tags"})


def test_a_replaced_file_is_other_content(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", rows(20))
    before = source_of(tmp_path).content_key()
    assert source_of(tmp_path).content_key() == before
    write(tmp_path / "a.parquet", rows(20, 1))
    assert source_of(tmp_path).content_key() != before


def test_missing_labels(tmp_path: Path) -> None:
    data = pa.table(
        {
            "picture": pa.array([{"bytes": png(i)} for i in range(4)]),
            "label": [1, -1, None, 0],
            "colour": ["red", None, "blue", "red"],
        },
        metadata={
            "huggingface": json.dumps(
                {"info": {"features": {"label": {"names": ["dog", "cat"], "_type": "ClassLabel"}}}}
            )
        },
    )
    pq.write_table(data, tmp_path / "a.parquet")
    table = labels(tmp_path, tasks=["label", "colour"])
    assert table.labels["label"].tolist() == [0, -1, -1, 1]
    assert table.labels["colour"].tolist() == [1, -1, 0, 1]


def test_rows_of_a_split_lie_together(tmp_path: Path) -> None:
    for i, split in enumerate(("train", "test", "train")):
        write(tmp_path / "data" / f"{i}_{split}.parquet", rows(10, 10 * i))
    data = open_dataset(spec_of(tmp_path / "data"), view_size=8, store=tmp_path / "store")
    assert data.images[:, 0, 0, 0].tolist() == [*range(10, 20), *range(10), *range(20, 30)]
    assert data.table.names[-1] == "train 19"
