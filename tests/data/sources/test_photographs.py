"""CelebA, CUB-200-2011, MEDIC, UC Merced and UT Zappos50K, as their archives unpack."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.image_files import UnreadableImageError
from tests.data.sources import trees
from tests.data.sources.downloads import labels_of, named, save_image, source_of, write_text
from tests.data.sources.trees import FACES, LAND, SHOES, SPECIES

LARGE, SMALL, MEDIUM = (name.partition("::")[2] for name in trees.ATTRIBUTES[1:4])
CSV = "ut-zap50k-data/meta-data.csv"


def in_folders(root: Path) -> Path:
    return trees.celeba(root, folders=("Anno", "Eval", "Img"))


@pytest.mark.parametrize("make", [trees.celeba, in_folders, trees.kaggle])
def test_all_packagings_of_celeba_are_alike(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    source = source_of("celeba", make(tmp_path))
    table = source.read_labels()
    assert source.missing() == []
    assert table.multi_hot["attributes"].tolist() == [list(bits) for bits in trees.FACE_BITS]
    assert (table.multi_hot_names, table.labels) == ({"attributes": FACES}, {})
    assert table.split.tolist() == list(trees.FACE_SPLITS)
    levels = source.decode(range(6), 8)[0][:, 4, 4, 0].tolist()
    assert levels == pytest.approx([30, 60, 90, 120, 150, 180], abs=1)


def test_each_attribute_is_a_column_of_classes_too(tmp_path: Path) -> None:
    """The set, two classes and a held-out one may be used together."""
    trees.celeba(tmp_path)
    source = source_of("celeba", tmp_path, tasks=["attributes", "Smiling"], held_out=["Young"])
    table = source.read_labels()
    assert table.classes == {"Smiling": ("no", "yes"), "Young": ("no", "yes")}
    assert table.labels["Smiling"].tolist() == [1, 0, 0, 1, 0, 1]
    assert [source.spec.kind_of(name) for name in ("attributes", "Young")] == ["set", "classes"]


def test_a_bird_has_the_attribute_of_the_highest_certainty(tmp_path: Path) -> None:
    """Equal certainties are decided by the species' shares, then by the lowest id.

    Some lines have further fields, and image 5 has no rating.
    """
    table = labels_of("cub200", trees.cub200(tmp_path))
    # Image 1: small is more certain. 2: equal, and equal in the species. 3: equal, small in more.
    assert named(table, "size")[:5] == [SMALL, LARGE, SMALL, MEDIUM, ""]
    assert named(table, "shape")[:5] == ["gull-like", "duck-like", "gull-like", "gull-like", ""]
    assert named(table, "primary_color")[:5] == ["", "black", "blue", "black", ""]
    assert named(table, "species")[:5] == [*(2 * SPECIES), SPECIES[0]]


def test_labels_may_be_those_of_the_species(tmp_path: Path) -> None:
    """An attribute that no image of the species has is missing."""
    table = labels_of("cub200", trees.cub200(tmp_path), labels="species", held_out=["bill_shape"])
    assert named(table, "size")[:5] == [SMALL, LARGE] * 2 + [SMALL]
    assert named(table, "primary_color")[:5] == ["black", "blue"] * 2 + ["black"]
    assert named(table, "bill_shape")[:5] == [""] * 5


def test_a_tenth_of_cubs_train_is_for_validation(tmp_path: Path) -> None:
    """The tenth is the same share of each species and follows the seed; test is the published."""
    table = labels_of("cub200", trees.cub200(tmp_path, num_items=80))
    assert (table.split[40:] == 2).all()
    train = table.split[:40].reshape(-1, 2)
    assert [np.bincount(column).tolist() for column in train.T] == [[18, 2], [18, 2]]
    assert (labels_of("cub200", tmp_path, seed=1).split != table.split).any()


def test_medic_has_four_labels_in_the_published_splits(tmp_path: Path) -> None:
    """An empty cell is missing; the other classes are in sorted order, as in the authors' code."""
    table = labels_of("medic", trees.medic(tmp_path))
    assert table.split.tolist() == [0, 0, 0, 1, 2]
    assert table.classes["damage_severity"] == ("little_or_none", "mild", "severe")
    assert table.labels["damage_severity"].tolist() == [2, 1, 0, 1, -1]
    assert table.labels["humanitarian"].tolist() == [0, -1, 0, 0, 0]
    assert table.classes["disaster_types"] == ("fire", "flood", "not_disaster")
    assert (table.names[1], table.warnings) == ("crisismmd/NA.jpg", ())
    # The authors' code reads data/train.tsv, data/dev.tsv and data/test.tsv.
    for split in trees.DISASTERS:
        (tmp_path / f"MEDIC_{split}.tsv").rename(tmp_path / "data" / f"{split}.tsv")
    assert (labels_of("medic", tmp_path).labels["informative"] == table.labels["informative"]).all()


def test_a_truncated_jpeg_is_used_with_grey_for_the_rest(tmp_path: Path) -> None:
    path = trees.medic(tmp_path) / "data" / "crisismmd" / "4.jpg"
    noise = np.random.default_rng(0).integers(200, 256, size=(256, 256, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path, quality=95)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    images, bad = source_of("medic", tmp_path).decode(range(5), 64)
    assert bad == {}
    assert images[3][:20].min() > 150
    assert (images[3][-8:] == 128).all()
    with pytest.raises(UnreadableImageError):  # without a whole header
        decode_image(whole[:100], 8, allow_truncated=True)


@pytest.mark.parametrize("folder", ["", "UCMerced_LandUse", "multilabels"])
def test_uc_merced_has_a_set_of_labels_and_the_use_of_the_land(tmp_path: Path, folder: str) -> None:
    source = source_of("ucmerced", trees.ucmerced(tmp_path, labels_folder=folder))
    table = source.read_labels()
    assert table.multi_hot_names == {"labels": LAND}
    bits = [[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 0, 0]]
    assert table.multi_hot["labels"][:4].tolist() == bits
    assert table.classes == {"land_use": ("agricultural", "airplane", "river")}
    assert table.labels["land_use"].tolist() == [0] * 20 + [1] * 20 + [2] * 20
    # The split has each use in the same shares.
    parts = table.split.reshape(3, 20)
    assert [np.bincount(part).tolist() for part in parts] == [[14, 2, 4]] * 3
    assert (parts[0] != parts[1]).any()
    images, bad = source.decode(range(60), 8)
    assert images.mean(axis=(1, 2, 3)).tolist() == list(range(0, 240, 4))
    assert (bad, source.check_images(8)) == ({}, ({}, ""))


def test_a_label_of_zappos_is_a_single_value_of_its_list(tmp_path: Path) -> None:
    """A cell may hold further values; blank cells and cells with two listed ones are missing."""
    table = labels_of("zappos50k", trees.zappos50k(tmp_path))
    closures = "Lace up|Lace up|Buckle||Slip-On|||Hook and Loop||Pull-on"
    assert "|".join(named(table, "closure")) == closures
    assert "|".join(named(table, "gender")) == "Men|Men||Women|Girls|Boys|Boys|Men|Men|Women"
    assert table.classes["category"] == ("Boots", "Sandals", "Shoes", "Slippers")
    # A last dot of a brand may be there, stored as %2E, or stripped by a program that unpacks.
    assert named(table, "brand")[2:5] == ["Kate N.Y"] * 3
    assert named(table, "brand")[5:8] == ["O'Brien & Söhne"] * 2 + ["Teva"]
    others = ["subcategory", "heel_height", "material"]
    table = labels_of("zappos50k", tmp_path, tasks=others, held_out=[])
    assert named(table, "material")[:5] == ["Leather", "Leather", "", "", "Suede"]
    assert named(table, "heel_height")[3:5] == ["3in - 3 3/4in", "Flat"]
    assert table.classes["subcategory"][:2] == ("Ankle", "Flat")
    ccn = named(labels_of("zappos50k", tmp_path, closures="ccn"), "closure")
    assert (ccn[:3], ccn[6]) == (["Lace up", "", ""], "Zipper")


def test_shoes_are_found_by_their_id(tmp_path: Path) -> None:
    """Row i of the labels has the grey level 20 i, whatever the order of folders is."""
    trees.zappos50k(tmp_path)
    images, bad = source_of("zappos50k", tmp_path).decode(range(len(SHOES)), 8)
    assert images.mean(axis=(1, 2, 3)) == pytest.approx(20 * np.arange(10), abs=1)
    assert bad == {}
    (tmp_path / "ut-zap50k-images/Boots/Ankle/O'Brien & Söhne/8.1.jpg").unlink()
    source = source_of("zappos50k", tmp_path, max_bad_images=0.2)
    assert source.check_images(8) == ({6: "8.1.jpg: no such file"}, "")
    assert named(source.read_labels(), "brand")[6] == ""
    square = (tmp_path / "ut-zap50k-images").rename(tmp_path / "ut-zap50k-images-square")
    # Of two files of one id the first name counts, in whatever order the folder lists them.
    for folder in ("Aaa", "Zzz"):
        save_image(square / folder / "9.1.jpg", 0)
    assert labels_of("zappos50k", tmp_path).names[7] == "Aaa/9.1.jpg"


def test_the_random_split_has_each_category_in_the_same_shares(tmp_path: Path) -> None:
    """70/10/20 of each category by the seed; it follows the ids, not the order of rows."""
    cells = ["Shoes"] * 200 + ["Boots"] * 60 + ["Sandals"] * 20
    rows = [f"{i // 4}-{i},{cell},x,,,Lace up,Men,," for i, cell in enumerate(cells)]
    write_text(tmp_path / CSV, trees.ZAPPOS_HEADER, *rows)
    (tmp_path / "ut-zap50k-images").mkdir()
    table = labels_of("zappos50k", tmp_path, held_out=[])
    counts = [np.bincount(table.split[table.labels["category"] == c]).tolist() for c in range(3)]
    assert counts == [[42, 6, 12], [14, 2, 4], [140, 20, 40]]
    assert (labels_of("zappos50k", tmp_path, held_out=[], seed=1).split != table.split).any()
    write_text(tmp_path / CSV, trees.ZAPPOS_HEADER, *reversed(rows))
    assert (labels_of("zappos50k", tmp_path, held_out=[]).split[::-1] == table.split).all()


def test_csns_split_is_that_of_its_triplets(tmp_path: Path) -> None:
    """Rows 0 to 4 are in train, 4 and 5 in val, 6 and 7 in test, and 8 and 9 in no list."""
    trees.zappos50k(tmp_path)
    # Lines in another order than the CSV's rows, and a brand's folder as it was for the authors.
    paths = [f"{folder.replace('N.Y', 'N.Y.')}/{name}.jpg" for folder, name, _ in reversed(SHOES)]
    write_text(tmp_path / "filenames.json", *paths)
    lists = tmp_path / "tripletlists"
    for split, rows in {"train": [0, 1, 2, 3, 4], "val": [4, 5], "test": [6, 7]}.items():
        for condition in ("class", "closure", "gender", "heel"):
            lines = [f"{9 - rows[0]} {9 - row} {9 - rows[-1]}" for row in rows]
            write_text(lists / f"{condition}_tripletlist_{split}.txt", *lines)
    table = labels_of("zappos50k", tmp_path, split="csn")
    assert table.split.tolist() == [0, 0, 0, 0, 1, 1, 2, 2, -1, -1]
    assert table.warnings == ("2 images are in none of CSN's lists and in no split",)
