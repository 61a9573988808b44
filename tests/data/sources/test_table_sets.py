"""Tests of the table source's label sets: CelebA's attribute file, and clashing names."""

from typing import Any

import pytest

from mtcon_ray.data.sources import SOURCES
from mtcon_ray.errors import DataError

ATTRIBUTES = """3
 Shiny Soft
2.jpg  1 -1
0.jpg -1  1
9.jpg  1  1

"""


def test_attributes_in_the_celeba_format_are_joined_by_file_name(files: Any) -> None:
    """The attributes of an image that the file does not list are unknown."""
    path = files.images.parent / "list_attr.txt"
    path.write_text(ATTRIBUTES)
    files.frame["image"] = "./" + files.frame["image"]
    spec = files.spec(
        attributes=str(path), multi_hot={"looks": ["Shiny", "Soft"]}, tasks=["looks", "Soft"]
    )
    table = SOURCES["table"](spec).read_labels()
    assert table.multi_hot["looks"][:4].tolist() == [[0, 1], [255, 255], [1, 0], [255, 255]]
    assert table.classes["Soft"] == ("-1", "1")
    assert table.labels["Soft"][:4].tolist() == [1, -1, 0, -1]
    files.frame.loc[5, "image"] = ""
    files.frame.to_csv(files.csv, index=False)
    with pytest.raises(DataError, match=r"'image' .* must name an image, got '' in row 7"):
        SOURCES["table"](spec).read_labels()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3\n", "has no line of names below its first line"),
        ("1\nShiny Soft\n0.jpg 1\n", "just 3 fields in each line after the first 2, got: "),
        ("2\nShiny Soft\n0.jpg 1 1\n", "lists 1 images, but its first line says '2'; the file may"),
        ("1\nShiny Soft\n0.jpg 1 2\n", "column 'Soft' .* hold 0 and 1, .* or nothing, got '2'"),
        (None, "as text in UTF-8"),
    ],
)
def test_a_broken_file_of_attributes_is_named(files: Any, text: str | None, message: str) -> None:
    path = files.images.parent / "list_attr.txt"
    if text is not None:
        path.write_text(text)
    spec = files.spec(attributes=str(path), multi_hot={"looks": ["Shiny", "Soft"]})
    with pytest.raises(DataError, match=message):
        SOURCES["table"](spec).read_labels()
