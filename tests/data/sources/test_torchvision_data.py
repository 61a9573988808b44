"""Data sets of torchvision, of which small ones in the same form lie on disk."""

import inspect
import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from torchvision import datasets

from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources import SOURCES, DataSource, DataSpec
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.torchvision_sets import PUBLISHED
from tests.data.sources.downloads import save_image, write_text


def spec_of(name: str, root: Path, **fields: Any) -> DataSpec:
    raw = {"kind": "torchvision", "name": name, "folder": str(root)} | fields
    return SOURCES["torchvision"].Spec.model_validate(raw)


def source_of(name: str, root: Path, **fields: Any) -> DataSource:
    return SOURCES["torchvision"](spec_of(name, root, **fields))


def labels(name: str, root: Path, **fields: Any) -> LabelTable:
    return source_of(name, root, **fields).read_labels()


def splits(table: LabelTable) -> Counter[str]:
    return Counter(SPLITS[split] for split in table.split)


def eurosat(root: Path) -> None:
    for place, name in enumerate(("Forest", "River")):
        for i in range(10):
            save_image(root / "eurosat/2750" / name / f"{name}_{i}.jpg", 10 * place + i)


def food101(root: Path) -> None:
    for split, first, count in (("train", 0, 8), ("test", 8, 2)):
        rows = {food: [f"{food}/{first + i}" for i in range(count)] for food in ("pie", "soup")}
        write_text(root / f"food-101/meta/{split}.json", json.dumps(rows))
        for names in rows.values():
            for name in names:
                save_image(root / f"food-101/images/{name}.jpg", int(name[-1]))


def aircraft(root: Path) -> None:
    data = root / "fgvc-aircraft-2013b" / "data"
    write_text(data / "variants.txt", "707-320", "A300", "A310")
    write_text(data / "families.txt", "Boeing 707", "A300")
    write_text(data / "manufacturers.txt", "Boeing", "Airbus")
    rows = [("707-320", "Boeing 707", "Boeing"), ("A300", "A300", "Airbus")]
    for place, split in enumerate(("train", "val", "test")):
        for at, level in enumerate(("variant", "family", "manufacturer")):
            lines = [f"{place}{i:06} {row[at]}" for i, row in enumerate(rows)]
            write_text(data / f"images_{level}_{split}.txt", *lines)
        for i in range(len(rows)):
            save_image(data / f"images/{place}{i:06}.jpg", 100)


def fashion(root: Path) -> None:
    """Writes 20 images for training and 10 for testing, of one grey level each."""
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for split, count in (("train", 20), ("t10k", 10)):
        size = count.to_bytes(4, "big")
        pixels = np.repeat(np.arange(count, dtype=np.uint8), 28 * 28).tobytes()
        header = b"\0\0\x08\x03" + size + (28).to_bytes(4, "big") * 2
        (raw / f"{split}-images-idx3-ubyte").write_bytes(header + pixels)
        codes = bytes(i % 2 for i in range(count))
        (raw / f"{split}-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + size + codes)


def test_without_published_splits_they_are_drawn_by_class(tmp_path: Path) -> None:
    eurosat(tmp_path)
    table = labels("EuroSAT", tmp_path, tasks=["land_use"])
    assert table.classes == {"land_use": ("Forest", "River")}
    assert splits(table) == Counter(train=14, val=2, test=4)
    assert table.names[10] == "eurosat/2750/River/River_0.jpg"
    assert table.labels["land_use"].tolist() == [0] * 10 + [1] * 10
    assert table.split_origin == "drawn at random from seed 0, the same shares in each class"


def test_val_is_drawn_where_only_train_and_test_are_published(tmp_path: Path) -> None:
    food101(tmp_path)
    table = labels("Food101", tmp_path)
    assert splits(table) == Counter(train=14, val=2, test=4)
    assert {name for name, s in zip(table.names, table.split, strict=True) if s == 2} == {
        f"food-101/images/{food}/{i}.jpg" for food in ("pie", "soup") for i in (8, 9)
    }
    assert table.split_origin == (
        "the splits of torchvision test, train: test is test, val is drawn from train"
    )


def test_three_published_splits_and_several_labels(tmp_path: Path) -> None:
    aircraft(tmp_path)
    table = labels("FGVCAircraft", tmp_path, tasks=["variant", "family"], held_out=["manufacturer"])
    assert table.split.tolist() == [0, 0, 1, 1, 2, 2]
    assert table.split_origin == "the splits of torchvision test, train, val"
    assert table.classes == {
        "variant": ("707-320", "A300"),
        "family": ("A300", "Boeing 707"),
        "manufacturer": ("Airbus", "Boeing"),
    }
    assert table.labels["variant"].tolist() == [0, 1] * 3
    assert table.labels["manufacturer"].tolist() == [1, 0] * 3


def test_pickles_of_earlier_versions_are_refused(tmp_path: Path) -> None:
    """torchvision would read them before the published files."""
    fashion(tmp_path)
    folder = tmp_path / "FashionMNIST" / "processed"
    folder.mkdir()
    for name in ("training.pt", "test.pt"):
        (folder / name).write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(DataError, match=r"because .*test\.pt is a pickle, .*; remove the"):
        source_of("FashionMNIST", tmp_path).read_labels()


@pytest.mark.parametrize("name", ["Food101", "FashionMNIST"])
def test_images_are_those_of_their_rows(tmp_path: Path, name: str) -> None:
    {"Food101": food101, "FashionMNIST": fashion}[name](tmp_path)
    data = open_dataset(spec_of(name, tmp_path), view_size=8, store=tmp_path / "store")
    levels = data.images[:, 0, 0, 0].tolist()
    if name == "Food101":
        assert levels == [*range(8), *range(8), 8, 9, 8, 9]
    else:
        assert levels == [*range(20), *range(10)]
        assert data.table.names[20] == "test 0"
        assert data.table.classes["class"] == ("T-shirt/top", "Trouser")


def test_a_download_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def download(self: datasets.EuroSAT) -> None:
        calls.append(self.root)
        eurosat(tmp_path)

    monkeypatch.setattr(datasets.EuroSAT, "download", download)
    with pytest.raises(DataError, match=r"cannot read EuroSAT .* set data\.download: true"):
        labels("EuroSAT", tmp_path)
    assert calls == []
    for _ in range(2):  # the second one finds the first one's
        assert len(labels("EuroSAT", tmp_path, download=True)) == 20
    assert calls == [str(tmp_path)]

    def fail(self: datasets.EuroSAT) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(datasets.EuroSAT, "download", fail)
    with pytest.raises(DataError, match="no route to host; unpack it there as torchvision does"):
        labels("EuroSAT", tmp_path / "other", download=True)


@pytest.mark.parametrize("name", PUBLISHED)
def test_constructors_take_the_arguments_that_are_given(name: str) -> None:
    known, make = PUBLISHED[name], getattr(datasets, name)
    signature = inspect.signature(make)
    for arguments in known.parts.values():
        given: dict[str, Any] = {**arguments, "download": False} | dict.fromkeys(known.options)
        if known.levels is not None:
            given[known.levels[0]] = known.levels[1][0]
        if known.labels is None:
            assert "loader" in signature.parameters
        signature.bind("root", **given)


@pytest.mark.parametrize(
    ("name", "fields", "rule"),
    [
        ("CIFAR10", {}, "no pickles, got 'CIFAR10'.*; CIFAR10, .* have a kind of their own"),
        ("Flowers", {}, "got 'Flowers'; did you mean 'Flowers102'"),
        ("EuroSAT", {"tasks": ["a"], "held_out": ["b"]}, "must have one label, got"),
        ("EuroSAT", {"options": {"size": 1}}, r"options of EuroSAT must be among \[\], got 'size'"),
        ("FGVCAircraft", {}, r"must be among \['variant', 'family', 'manufacturer'\], got"),
    ],
)
def test_specs_must_fit_the_data_set(name: str, fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        spec_of(name, Path("data"), **fields)


def test_the_key_follows_the_pixels_in_memory(tmp_path: Path) -> None:
    fashion(tmp_path)
    before = source_of("FashionMNIST", tmp_path).content_key()
    assert source_of("FashionMNIST", tmp_path).content_key() == before
    file = tmp_path / "FashionMNIST/raw/t10k-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    assert source_of("FashionMNIST", tmp_path).content_key() != before
