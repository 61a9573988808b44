"""Tests of CUB-200-2011, on a small tree as the official archive unpacks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.errors import DataError
from tests.data.sources.downloads import save_image, source_of, write_text

SPECIES = ("001.Black_footed_Albatross", "002.Laysan_Albatross")
ATTRIBUTES = (
    "has_bill_shape::dagger",
    "has_size::large_(16_-_32_in)",
    "has_size::small_(5_-_9_in)",
    "has_size::medium_(9_-_16_in)",
    "has_shape::gull-like",
    "has_shape::duck-like",
    "has_primary_color::blue",
    "has_primary_color::black",
)
# Image, attribute, present, certainty: of images 1 to 4.
RATINGS = [
    "1 2 1 3 5.5", "1 3 1 4 5.5", "1 4 0 4 5.5", "1 5 1 4 1.2", "1 6 1 4 1.2", "1 7 0 1 9",
    "2 2 1 3 5.5", "2 3 1 3 5.5", "2 5 0 4 1.2", "2 6 1 1 0 1.2 8", "2 8 1 4 3",
    "3 2 1 3 5.5", "3 3 1 3 5.5", "3 4 0 4 1 7 1.2", "3 5 1 2 1.1", "3 7 1 4 3",
    "4 4 1 2 5.5", "4 5 1 2 1.1", "4 8 1 4 3 ",
]  # fmt: skip
EACH = [f"{i} 1" for i in range(1, 41)]
LARGE, SMALL, MEDIUM = (name.partition("::")[2] for name in ATTRIBUTES[1:4])


def make(root: Path, num_items: int = 40, end: str = "\n") -> Path:
    """Writes the tree; odd images are of the first species, and the second half is for test."""
    top = root / "CUB_200_2011"
    items = range(1, num_items + 1)
    of = [SPECIES[1 - i % 2] for i in items]
    texts = {
        "images.txt": [f"{i} {s}/{s[4:]}_{i:04}.jpg" for i, s in zip(items, of, strict=True)],
        "image_class_labels.txt": [f"{i} {int(s[:3])}" for i, s in zip(items, of, strict=True)],
        "train_test_split.txt": [f"{i} {int(i <= num_items // 2)}" for i in items],
        "classes.txt": [f"{int(s[:3])} {s}" for s in SPECIES],
        "bounding_boxes.txt": [f"{i} 10.0 4.0 20.0 10.0" for i in items],
        "attributes/image_attribute_labels.txt": RATINGS,
        "attributes/class_attribute_labels_continuous.txt": [
            "0.0 40.0 50.0 10.0 90.0 2.5 0.0 100.0",
            "0.0 30.0 30.0 10.0 50.0 60.0 99.0 0.0",
        ],
    }
    for name, lines in texts.items():
        write_text(top / name, *lines, end=end)
    write_text(root / "attributes.txt", *(f"{i} {a}" for i, a in enumerate(ATTRIBUTES, 1)), end=end)
    for i, species in zip(items, of, strict=True):
        save_image(top / "images" / species / f"{species[4:]}_{i:04}.jpg", 3 * i, (40, 20))
    return root


def labels(root: Path, **fields: Any) -> LabelTable:
    return source_of("cub200", root, **fields).read_labels()


def named(table: LabelTable, column: str) -> list[str]:
    """Returns the class name of each of the first five images, "" where missing."""
    return ["" if c < 0 else table.classes[column][c] for c in table.labels[column][:5]]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_an_image_has_the_attribute_of_the_highest_certainty(tmp_path: Path, end: str) -> None:
    """Equal certainties are decided by the species' shares, then by the lowest id.

    Some lines have further fields, and image 5 has no rating.
    """
    table = labels(make(tmp_path, end=end))
    # Image 1: small is more certain. 2: equal, and equal in the species. 3: equal, small in more.
    assert named(table, "size") == [SMALL, LARGE, SMALL, MEDIUM, ""]
    assert named(table, "shape") == ["gull-like", "duck-like", "gull-like", "gull-like", ""]
    assert named(table, "primary_color") == ["", "black", "blue", "black", ""]
    assert named(table, "species") == [*(2 * SPECIES), SPECIES[0]]


def test_labels_may_be_those_of_the_species(tmp_path: Path) -> None:
    table = labels(make(tmp_path), labels="species")
    assert named(table, "size") == [SMALL, LARGE] * 2 + [SMALL]
    assert named(table, "primary_color") == ["black", "blue"] * 2 + ["black"]


def test_an_attribute_without_a_rating_of_the_species_is_missing(tmp_path: Path) -> None:
    table = labels(make(tmp_path), labels="species", held_out=["bill_shape"])
    assert named(table, "bill_shape") == [""] * 5
    with pytest.raises(DataError, match="must have attributes has_wing_shape::"):
        labels(tmp_path, held_out=["wing_shape"])


def test_a_tenth_of_train_is_for_validation(tmp_path: Path) -> None:
    """The tenth is the same share of each species and follows the seed; test is the published."""
    table = labels(make(tmp_path, 80))
    assert (table.split[40:] == 2).all()
    train = table.split[:40].reshape(-1, 2)
    assert [np.bincount(column).tolist() for column in train.T] == [[18, 2], [18, 2]]
    assert (labels(tmp_path, seed=1).split != table.split).any()


def test_images_may_be_cut_to_the_bird(tmp_path: Path) -> None:
    """The box of 200 x 100 pixels from (100, 40) is white on black.

    A JPEG that is decoded at a reduced scale, as other large ones are, would be cut elsewhere.
    """
    make(tmp_path)
    boxes = tmp_path / "CUB_200_2011" / "bounding_boxes.txt"
    boxes.write_text(boxes.read_text().replace("1 10.0 4.0 20.0 10.0", "1 100.0 40.0 200.0 100.0"))
    pixels = np.zeros((200, 400, 3), dtype=np.uint8)
    pixels[40:140, 100:300] = 255
    whole, cut = source_of("cub200", tmp_path), source_of("cub200", tmp_path, crop=True)
    Image.fromarray(pixels).save(whole.path("images") / whole.read_labels().names[0], quality=95)
    assert cut.decode([0], 16)[0].min() > 200
    assert whole.decode([0], 16)[0].min() < 50
    assert cut.content_key() != whole.content_key()
    before = cut.content_key()
    boxes.write_text(boxes.read_text().replace("1 100.0", "1 101.0", 1))
    assert source_of("cub200", tmp_path, crop=True).content_key() != before
    boxes.write_text(boxes.read_text().replace("2 10.0", "2 500.0", 1))
    _, bad = source_of("cub200", tmp_path, crop=True).decode([1], 16)
    assert list(bad) == [1]


def test_an_archive_that_lies_at_the_root_is_compared_with_its_digest(tmp_path: Path) -> None:
    source = source_of("cub200", make(tmp_path))
    table = source.read_labels()
    before = source.differences(table)
    (tmp_path / "CUB_200_2011.tgz").write_text("cut short")
    (found,) = set(source.differences(table)) - set(before)
    assert found == (
        f"{tmp_path}/CUB_200_2011.tgz has another MD5 than the published "
        "97eceeb196236b17998738112f37df78"
    )


def test_the_root_may_be_the_folder_itself(tmp_path: Path) -> None:
    outer = make(tmp_path / "birds")
    inner = outer / "CUB_200_2011"
    assert named(labels(inner), "size")[0] == SMALL
    (outer / "attributes.txt").rename(inner / "attributes" / "attributes.txt")
    for root in (outer, inner):
        assert source_of("cub200", root).missing() == []
    write_text(tmp_path / "attributes.txt", "of another data set")
    assert source_of("cub200", outer).path("names of attributes").parent.parent == inner


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("images.txt", ["1 ../../../x.jpg"], "images.txt must name files inside"),
        ("images.txt", ["one x.jpg"], "line 1 of .*images.txt must be an id and a text, got 'one"),
        ("train_test_split.txt", ["1 1"], "must have a line for each image, got none for 2"),
        ("train_test_split.txt", [*EACH, "2 2"], "must have 0 or 1 for each image, got '2' for 2"),
        ("train_test_split.txt", [*EACH, "2 yes"], "0 or 1 for each image, got 'yes' for 2"),
        ("image_class_labels.txt", [*EACH, "3 x"], "an id of classes.txt for each image, got 'x'"),
        ("image_class_labels.txt", [*EACH, "3 0"], "an id of classes.txt for each image, got '0'"),
        (
            "bounding_boxes.txt",
            [*EACH, "1 1 2 3"],
            "left, top, width and height .* got '1 2 3' for 1",
        ),
        (
            "bounding_boxes.txt",
            [*EACH, "1 1 2 3 a"],
            "left, top, width and height .* got '1 2 3 a'",
        ),
        ("attributes/image_attribute_labels.txt", ["1 9 1 4 2"], "up to 8, got 1 and 9 in line 1"),
        ("attributes/image_attribute_labels.txt", ["1 2 1 x 2"], "at least 4 fields in each line"),
        (
            "attributes/class_attribute_labels_continuous.txt",
            ["1 2"],
            "a number for each attribute",
        ),
        ("attributes/class_attribute_labels_continuous.txt", ["1 x"], "must hold numbers, got"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, name: str, lines: list[str], message: str) -> None:
    write_text(make(tmp_path) / "CUB_200_2011" / name, *lines)
    crop = name == "bounding_boxes.txt"
    source = source_of("cub200", tmp_path, crop=crop)
    with pytest.raises(DataError, match=message):
        (source.content_key if crop else source.read_labels)()
