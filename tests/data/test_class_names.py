"""Tests of class names that are one name in several spellings."""

import numpy as np
import pytest

from mtcon_ray.data.class_names import MAX_SHOWN, doubtful_names


@pytest.mark.parametrize(
    "names",
    [
        ("1", "1.0", "01", "+1"),
        ("10", "1e1", "010.00"),
        ("caf\u00e9", "cafe\u0301", " CAFE\u0301"),
        ("boot", "boot\u200b", "\ufeffboot", "bo\u00adot"),
        ("low heel", "low\u00a0heel", "low  heel", "Low\theel "),
        ("\uff21", "A", "a"),
    ],
)
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
