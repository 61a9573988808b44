"""Tests of what a cell says: nothing, yes or no, a number, a class or a list of names."""

from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.data import cells
from mtcon_ray.data.table_file import TableFile, read_bits, read_numbers
from mtcon_ray.errors import DataError
from mtcon_ray.spec.problem import UNKNOWN_BIT


def table(**columns: str) -> TableFile:
    """Returns a table of these columns, whose cells are separated by spaces; _ stands for none."""
    parts = {n: text.replace("_", "").split(" ") for n, text in columns.items()}
    found = {name: np.array(part, dtype=object) for name, part in parts.items()}
    return TableFile(Path("labels.csv"), found, np.arange(len(next(iter(parts.values())))) + 2)


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("1 0 _ 1.0 0.0", [1, 0, UNKNOWN_BIT, 1, 0]),
        ("True False TRUE false", [1, 0, 1, 0]),
        ("yes No _", [1, 0, UNKNOWN_BIT]),
        ("1 -1 _ -1.0", [1, 0, UNKNOWN_BIT, 0]),
    ],
)
def test_bits_have_many_spellings(text: str, bits: list[int]) -> None:
    assert read_bits(table(a=text), ["a"])[:, 0].tolist() == bits


@pytest.mark.parametrize("cell", ["2", "-2", "0.5", "maybe", "1.0.0", "nan", " ", "٣"])
def test_other_texts_are_no_bits(cell: str) -> None:
    found = table(a="1 0")
    found.columns["a"][1] = cell
    with pytest.raises(DataError, match=f"'a' .* hold 0 and 1, .* got '{cell}' in row 3"):
        read_bits(found, ["a"])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"a": "1 0 -1 -1 _"}, "'a' .* where column 'a' .* got '-1' in row 4 and 1 more"),
        ({"a": "1.0 0.0 -1.0"}, "column 'a' .* got '-1.0' in row 4$"),
        ({"a": "1 -1 _", "b": "1 0 _"}, "column 'a' .* where column 'b' .* in row 3"),
        ({"a": "1 -1", "b": "yes no"}, "column 'a' .* where column 'b' .* in row 3"),
    ],
)
def test_minus_one_beside_zero_is_refused(columns: dict[str, str], says: str) -> None:
    """It is uncertain in CheXpert and no in CelebA; in no set both numbers mean no."""
    with pytest.raises(DataError, match=says):
        read_bits(table(**columns), list(columns))


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("a b nano", ""),
        ("a ? - Unknown missing NaN", "? - Unknown missing NaN"),
        ("0 1 2 -1", "-1"),
        ("-1.0 a", "-1.0"),
        ("1 -1", ""),
        ("-2 -1 0 1", ""),
    ],
)
def test_class_names_that_stand_for_a_missing_label(names: str, found: str) -> None:
    assert cells.words_for_nothing(names.split()) == set(found.split())


def test_numbers_whose_squares_overflow_are_refused() -> None:
    assert read_numbers(table(a="1e150 _ -2.5"), "a")[[0, 2]].tolist() == [1e150, -2.5]
    for cell in ("1e300", "-1e151", "inf", "x"):
        with pytest.raises(DataError, match=r"at most 1e\+150, got .* in row 3"):
            read_numbers(table(a=f"1 {cell}"), "a")
