"""Tests of what a cell says: nothing, yes or no, or a name in several spellings."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.data import cells
from mtcon_ray.data.class_names import MAX_SHOWN, doubtful_names
from mtcon_ray.data.column import Column
from mtcon_ray.data.table_file import TableFile, read_bits
from mtcon_ray.errors import DataError
from mtcon_ray.spec.problem import UNKNOWN_BIT


def table(**columns: str) -> TableFile:
    """Returns a table of these columns, whose cells are separated by spaces; _ stands for none."""
    parts = {n: text.replace("_", "").split(" ") for n, text in columns.items()}
    found = {name: Column.of(part) for name, part in parts.items()}
    return TableFile(Path("labels.csv"), found, np.arange(len(next(iter(parts.values())))) + 2)


BITS = [
    ("1 0 _ 1.0 0.0", [1, 0, UNKNOWN_BIT, 1, 0]), ("True False TRUE false", [1, 0, 1, 0]),
    ("yes No _", [1, 0, UNKNOWN_BIT]), ("1 -1 _ -1.0", [1, 0, UNKNOWN_BIT, 0]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "bits"), BITS)
def test_bits_have_many_spellings(text: str, bits: list[int]) -> None:
    assert read_bits(table(a=text), ["a"])[:, 0].tolist() == bits


@pytest.mark.parametrize("cell", ["2", "-2", "0.5", "maybe", "1.0.0", "nan", " ", "٣"])
def test_other_texts_are_no_bits(cell: str) -> None:
    found = replace(table(a="1 0"), columns={"a": Column.of(["1", cell])})
    with pytest.raises(DataError, match=f"'a' .* hold 0 and 1, .* got '{cell}' in row 3"):
        read_bits(found, ["a"])


MINUS_ONES = [
    ({"a": "1 0 -1 -1 _"}, "'a' .* where column 'a' .* got '-1' in row 4 and 1 more"),
    ({"a": "1.0 0.0 -1.0"}, "column 'a' .* got '-1.0' in row 4$"),
    ({"a": "1 -1 _", "b": "1 0 _"}, "column 'a' .* where column 'b' .* in row 3"),
    ({"a": "1 -1", "b": "yes no"}, "column 'a' .* where column 'b' .* in row 3"),
]


@pytest.mark.parametrize(("columns", "says"), MINUS_ONES)
def test_minus_one_beside_zero_is_refused(columns: dict[str, str], says: str) -> None:
    """It is uncertain in CheXpert and no in CelebA; in no set both numbers mean no."""
    with pytest.raises(DataError, match=says):
        read_bits(table(**columns), list(columns))


WORDS_FOR_NOTHING = [
    ("a b nano", ""), ("a ? - Unknown missing NaN", "? - Unknown missing NaN"),
    ("0 1 2 -1", "-1"), ("-1.0 a", "-1.0"), ("1 -1", ""), ("-2 -1 0 1", ""),
]  # fmt: skip


@pytest.mark.parametrize(("names", "found"), WORDS_FOR_NOTHING)
def test_class_names_that_stand_for_a_missing_label(names: str, found: str) -> None:
    assert cells.words_for_nothing(names.split()) == set(found.split())


SPELLINGS = [
    ("1", "1.0", "01", "+1"), ("10", "1e1", "010.00"),
    ("caf\u00e9", "cafe\u0301", " CAFE\u0301"),
    ("boot", "boot\u200b", "\ufeffboot", "bo\u00adot"),
    ("low heel", "low\u00a0heel", "low  heel", "Low\theel "), ("\uff21", "A", "a"),
]  # fmt: skip


@pytest.mark.parametrize("names", SPELLINGS)
def test_spellings_of_one_name_are_found(names: tuple[str, ...]) -> None:
    """The names are shown so that a reader can tell them apart, with the first row of each."""
    codes = np.array([*range(len(names)), 0, -1])
    [warning] = doubtful_names("kind", names, codes, np.arange(2, len(codes) + 2))
    groups = warning.removeprefix("label column 'kind': ").partition(" count as ")[0].split(" and ")
    assert len({group.partition(" (")[0] for group in groups}) == len(names)
    assert groups[0].endswith("(2 rows, first row 2)")
    assert groups[1].endswith("(1 rows, first row 3)")


@pytest.mark.parametrize(
    "names", [("1", "1.5", "-1", "-10"), ("a b", "ab", "b a"), ("1a", "01a"), ("\u00df", "s")]
)
def test_other_names_are_not(names: tuple[str, ...]) -> None:
    assert doubtful_names("kind", names, np.arange(len(names)), np.arange(9)) == []


def test_many_are_shortened() -> None:
    names = [f"{i}{end}" for i in range(9) for end in ("", ".0")]
    [warning] = doubtful_names("kind", names, np.arange(18), np.arange(18), "image")
    assert "first image 1), '1' (1 rows, first image 2) and '1.0'" in warning
    assert f"and the spellings of {9 - MAX_SHOWN} more labels count as" in warning
