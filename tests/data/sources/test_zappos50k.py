"""Tests of UT Zappos50K, on a small tree as the official archives unpack."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.labels import LabelTable, read_table
from mtcon_ray.errors import DataError
from tests.data.sources.downloads import save_image, source_of, write_text

HEADER = "CID,Category,SubCategory,HeelHeight,Insole,Closure,Gender,Material,ToeStyle"
# Folder, file id, and the cells from HeelHeight on.
ROWS = [
    ("Shoes/Oxfords/Bostonian", "100627.72", ",,Lace up,Men,Leather,"),
    ("Shoes/Oxfords/Bostonian", "100627.9", ",,Lace up;Zipper,Men,Leather,"),
    ("Shoes/Heels/Kate N.Y.", "7.1", "3in - 3 3/4in,,Buckle,Women;Girls,Leather;Suede,Open Toe"),
    ("Shoes/Heels/Kate N.Y%2E", "7.2", "3in - 3 3/4in,,,Women,,Open Toe"),
    ("Shoes/Flats/Kate N.Y", "7.3", "Flat,,Slip-On,Girls,Suede,"),
    ("Boots/Ankle/O'Brien & Söhne", "8.0", ",,Pull-on;Slip-On,Boys,,"),
    ("Boots/Ankle/O'Brien & Söhne", "8.1", ",,Zipper,Boys,,"),
    ("Sandals/Flat/Teva", "9.1", ",,Hook and Loop,Men,,"),
    ("Sandals/Flat/Teva", "9.2", ",,hook & loop ;,Men,,"),
    ("Slippers/Slipper Flats/Teva", "10.1", ",,Pull-on,Women,,"),
]


def make(root: Path, end: str = "\n") -> Path:
    """Writes the tree; the image of row i has the grey level 20 i."""
    lines = [HEADER]
    for row, (folder, name, cells) in enumerate(ROWS):
        category, subcategory, _ = folder.split("/")
        lines.append(f"{name.replace('.', '-')},{category},{subcategory},{cells}")
        save_image(root / "ut-zap50k-images" / folder / f"{name}.jpg", 20 * row)
    (root / "ut-zap50k-images" / "Thumbs.db").write_bytes(b"no image")
    write_text(root / "ut-zap50k-data" / "meta-data.csv", *lines, end=end)
    return root


def labels(root: Path, **fields: Any) -> LabelTable:
    return source_of("zappos50k", root, **fields).read_labels()


def named(table: LabelTable, column: str) -> list[str]:
    """Returns the class name of each item, "" where missing."""
    return ["" if code < 0 else table.classes[column][code] for code in table.labels[column]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_label_is_a_single_value_of_its_list(tmp_path: Path, end: str) -> None:
    """A cell may hold further values; blank cells and cells with two listed ones are missing."""
    table = labels(make(tmp_path, end))
    assert named(table, "closure") == [
        "Lace up", "Lace up", "Buckle", "", "Slip-On", "", "", "Hook and Loop", "", "Pull-on",
    ]  # fmt: skip
    assert named(table, "gender") == [
        "Men", "Men", "", "Women", "Girls", "Boys", "Boys", "Men", "Men", "Women",
    ]  # fmt: skip
    assert table.classes["category"] == ("Boots", "Sandals", "Shoes", "Slippers")


def test_the_brand_is_the_folder_and_a_last_dot_makes_no_difference(tmp_path: Path) -> None:
    """The dot may be there, stored as %2E, or stripped when the archive was unpacked."""
    found = named(labels(make(tmp_path)), "brand")
    assert found[2:5] == ["Kate N.Y"] * 3
    assert found[5:8] == ["O'Brien & Söhne"] * 2 + ["Teva"]


def test_closures_may_be_those_of_ccn_or_of_the_user(tmp_path: Path) -> None:
    make(tmp_path)
    ccn = named(labels(tmp_path, closures="ccn"), "closure")
    assert ccn[:3] == ["Lace up", "", ""]
    assert ccn[6] == "Zipper"
    own = labels(tmp_path, closures=["slip on", "LACE-UP"])
    assert own.classes["closure"] == ("LACE-UP", "slip on")
    assert named(own, "closure")[4:6] == ["slip on"] * 2
    with pytest.raises(DataError, match=r"closures must .* 'Closure' .*, got 'Zip'; did .*Zipper"):
        labels(tmp_path, closures=["Zip", "Buckle"])
    with pytest.raises(ValidationError):
        labels(tmp_path, closures=["Buckle"])
    with pytest.raises(ValidationError, match="different classes, got 'Slip-On' and 'slip on'"):
        labels(tmp_path, closures=["Slip-On", "Buckle", "slip on"])


def test_other_columns_are_labels_too(tmp_path: Path) -> None:
    table = labels(make(tmp_path), tasks=["subcategory", "heel_height", "material"], held_out=[])
    assert named(table, "material")[:5] == ["Leather", "Leather", "", "", "Suede"]
    assert named(table, "heel_height")[3:5] == ["3in - 3 3/4in", "Flat"]
    assert table.classes["subcategory"][:2] == ("Ankle", "Flat")


def test_images_are_found_by_their_id(tmp_path: Path) -> None:
    """Row i of the labels has the grey level 20 i, whatever the order of folders is."""
    images, bad = source_of("zappos50k", make(tmp_path)).decode(range(len(ROWS)), 8)
    assert images.mean(axis=(1, 2, 3)) == pytest.approx(20 * np.arange(10), abs=1)
    assert bad == {}


def test_an_absent_image_is_named(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "ut-zap50k-images/Boots/Ankle/O'Brien & Söhne/8.1.jpg").unlink()
    source = source_of("zappos50k", tmp_path, max_bad_images=0.2)
    assert source.check_images(8) == ({6: "8.1.jpg: no such file"}, "")
    assert named(source.read_labels(), "brand")[6] == ""


@pytest.mark.parametrize("is_link", [False, True])
def test_images_outside_of_the_folder_are_refused(tmp_path: Path, is_link: bool) -> None:
    make(tmp_path)
    save_image(tmp_path / "secret.jpg", 255)
    if is_link:
        inside = tmp_path / "ut-zap50k-images/Sandals/Flat/Teva/9.1.jpg"
        inside.unlink()
        inside.symlink_to(tmp_path / "secret.jpg")
    else:
        csv = tmp_path / "ut-zap50k-data" / "meta-data.csv"
        csv.write_text(csv.read_text() + "../secret,Shoes,Oxfords,,,Lace up,Men,,\n")
    with pytest.raises(DataError, match=r"meta-data.csv must name files inside .*, got '.*jpg'"):
        labels(tmp_path)


def big(root: Path) -> Path:
    """Writes labels of 200 shoes, 60 boots and 20 sandals in products of four colours."""
    cells = ["Shoes"] * 200 + ["Boots"] * 60 + ["Sandals"] * 20
    rows = [f"{i // 4}-{i},{c},x,,,Lace up,Men,," for i, c in enumerate(cells)]
    write_text(root / "ut-zap50k-data" / "meta-data.csv", HEADER, *rows)
    (root / "ut-zap50k-images").mkdir()
    return root


def test_the_random_split_has_each_category_in_the_same_shares(tmp_path: Path) -> None:
    """70/10/20 of each category by the seed; it follows the ids, not the order of rows."""
    big(tmp_path)
    table = labels(tmp_path, held_out=[])
    counts = [np.bincount(table.split[table.labels["category"] == c]).tolist() for c in range(3)]
    assert counts == [[42, 6, 12], [14, 2, 4], [140, 20, 40]]
    assert (labels(tmp_path, held_out=[], seed=1).split != table.split).any()
    csv = tmp_path / "ut-zap50k-data" / "meta-data.csv"
    header, *rows = csv.read_text().splitlines()
    write_text(csv, header, *reversed(rows))
    assert (labels(tmp_path, held_out=[]).split[::-1] == table.split).all()


def test_a_product_may_stay_in_one_split(tmp_path: Path) -> None:
    big(tmp_path)
    together = labels(tmp_path, held_out=[], group_by_product=True).split.reshape(-1, 4)
    assert (together == together[:, :1]).all()
    apart = labels(tmp_path, held_out=[]).split.reshape(-1, 4)
    assert (apart != apart[:, :1]).any()


def test_a_product_of_two_categories_stays_in_one_split(tmp_path: Path) -> None:
    big(tmp_path)
    rows = [f"{i // 2}-{i},{('Shoes', 'Boots')[i % 2]},x,,,Lace up,Men,," for i in range(200)]
    write_text(tmp_path / "ut-zap50k-data" / "meta-data.csv", HEADER, *rows)
    split = labels(tmp_path, held_out=[], group_by_product=True).split
    assert (split[::2] == split[1::2]).all()
    assert np.bincount(split).tolist() == [140, 20, 40]


def with_triplets(root: Path) -> Path:
    """Adds CSN's lists: rows 0 to 4 train, 4 and 5 val, 6 and 7 test; 8 and 9 are in none."""
    make(root)
    # Lines in another order than the CSV's rows, and a brand's folder as it was for the authors.
    paths = [f"{folder.replace('N.Y', 'N.Y.')}/{name}.jpg" for folder, name, _ in reversed(ROWS)]
    write_text(root / "filenames.json", *paths)
    images = {"train": [0, 1, 2, 3, 4], "val": [4, 5], "test": [6, 7]}
    for split, rows in images.items():
        for condition in ("class", "closure", "gender", "heel"):
            lines = [f"{9 - rows[0]} {9 - row} {9 - rows[-1]}" for row in rows]
            write_text(root / "tripletlists" / f"{condition}_tripletlist_{split}.txt", *lines)
    return root


def test_csns_split_is_that_of_its_triplets(tmp_path: Path) -> None:
    table = labels(with_triplets(tmp_path), split="csn")
    assert table.split.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, -1, -1]
    assert table.warnings == (
        "2 images are in none of CSN's lists and in no split",
        "1 images are in CSN's lists of two splits; test is preferred to val, and val to train",
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 2 10", "must hold numbers from 0 to 9, .*, got 1 to 10"),
        ("1 2 x", "must hold numbers of images"),
    ],
)
def test_a_broken_list_of_triplets_is_named(tmp_path: Path, line: str, message: str) -> None:
    with_triplets(tmp_path)
    write_text(tmp_path / "tripletlists" / "heel_tripletlist_val.txt", line)
    with pytest.raises(DataError, match=f"heel_tripletlist_val.txt {message}"):
        labels(tmp_path, split="csn")


def test_a_part_that_is_not_there_says_where_it_comes_from(tmp_path: Path) -> None:
    source = source_of("zappos50k", tmp_path, split="csn")
    assert [line.partition(":")[0] for line in source.missing()] == [
        "images", "labels", "triplets", "file names of triplets",
    ]  # fmt: skip
    make(tmp_path)
    assert [line.partition(":")[0] for line in source.missing()] == [
        "triplets", "file names of triplets",
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"must hold file names .* from csn_zappos_triplets.zip of"):
        labels(tmp_path, split="csn")


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    csv = make(tmp_path) / "ut-zap50k-data" / "meta-data.csv"
    csv.write_text(csv.read_text().replace(",Gender,", ",gender,"))
    with pytest.raises(DataError, match=r"must have the column 'Gender'; did you mean 'gender'\?"):
        labels(tmp_path)


def test_counts_are_compared_with_the_published_ones(tmp_path: Path) -> None:
    source = source_of("zappos50k", make(tmp_path))
    assert source.differences(source.read_labels()) == ["10 images, where 50,025 are published"]


def test_the_square_images_are_another_folder(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "ut-zap50k-images").rename(tmp_path / "square")
    assert named(labels(tmp_path, image_folder="square"), "brand")[0] == "Bostonian"


def test_the_data_train_as_any_other(tmp_path: Path) -> None:
    """Brands beyond held_out_top_k are missing, and the cache holds the images."""
    root = big(tmp_path)
    for i in range(280):
        brand = f"Brand {i % 30}" if i < 250 else "Common"
        folder = root / "ut-zap50k-images" / "Shoes" / "x" / brand
        folder.mkdir(parents=True, exist_ok=True)
        save_image(folder / f"{i // 4}.{i}.jpg", 100)
    source = source_of(
        "zappos50k", root, tasks=["category"], held_out_top_k=2, label_noise={"category": 0.1}
    )
    assert set(read_table(source).classes["brand"]) == {"Brand 0", "Common"}
    data = open_dataset(source.spec, view_size=8, store=tmp_path / "store")
    assert data.images.shape == (280, 10, 10, 3)
    assert data.sizes == {"category": 3}
