"""`init`: the kinds of the columns of tables, as published data sets and spreadsheets have them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtcon_ray.cli.infer_labels import guess_labels, separator_of
from mtcon_ray.data.table_file import TableFile
from mtcon_ray.errors import DataError

SPELLINGS = [("0", "1"), ("False", "True"), ("0.0", "1.0"), ("no", "Yes")] * 2
BITS = {f"A{k}": {no: 9, yes: 21} for k, (no, yes) in enumerate(SPELLINGS)}
CELEBA = {f"C{k}": {"-1": 9, "1": 21} for k in range(9)}
KIND = {"kind": {"a": 20, "b": 20, "c": 20}}


KINDS = [
    (KIND, ("kind",), {}),
    (BITS, ("attributes",), {"attributes": [*BITS]}),
    (BITS | KIND, ("kind",), {"attributes": [*BITS]}),
    (BITS | CELEBA, tuple(BITS), {"attributes": [*CELEBA]}),
    (BITS | {"attributes": KIND["kind"]}, ("attributes",), {"attributes_": [*BITS]}),
    ({"A": {"0": 9, "1": 21}}, ("A",), {}),
    ({f"F{k}": {"0.0": 9, "1.0": 9, "-1.0": 9} for k in range(9)}, None, {}),
    ({"grade": {"0.0": 30, "1.0": 30}}, ("grade",), {}),
    ({"grade": {f"{i}.0": 6 for i in range(30)}} | KIND, ("kind",), {}),
    ({"grade": {"0.5": 30, "1.5": 30, "2": 30}} | KIND, ("kind",), {}),
    ({"title": {f"t{i}": 1 for i in range(60)}} | KIND, ("kind",), {}),
    ({"constant": {"a": 60}} | KIND, ("kind",), {}),
    ({"brand": {f"{i}": 6 for i in range(21)}} | KIND, ("brand", "kind"), {}),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "tasks", "sets"), KINDS)
def test_kinds(columns: Mapping[str, Mapping[str, int]], tasks: Any, sets: dict[str, Any]) -> None:
    found = guess_labels(columns)
    assert (found.tasks, found.sets) == (tasks or tuple(columns), sets)


SEPARATORS = [
    (("Mass", "Mass|Edema", "Edema"), "|"),
    (("a;b", "a", "b; a", ""), ";"),
    (("Black, White", "Black", "White"), ","),
    (("1|2", "1", "2"), "|"),
    (("tench, Tinca tinca", "goldfish, Carassius auratus"), None),
    (("0,5", "1,5", "2,5", "1"), None),
    (tuple(f"[{a}, {b}] " for a in "123" for b in "123"), None),
    ((*(f"('{a}', '{b}')" for a in "xyz" for b in "xyz"), ""), None),
    (tuple(f'{{"a": {a}, "b": {b}}}' for a in "123" for b in "123"), None),
    (tuple(f"[[{a}], [{b}]]" for a in "123" for b in "123"), None),
    (("(a)|(b)", "(b)", "(a)"), "|"),
    (("a", "b"), None),
    ((), None),
]


@pytest.mark.parametrize(("texts", "separator"), SEPARATORS)
def test_separators_of_lists(texts: tuple[str, ...], separator: str | None) -> None:
    assert separator_of(dict.fromkeys(texts, 5)) == separator


@pytest.mark.parametrize("separator", ["|", ";", ","])
def test_lists_are_sets(separator: str) -> None:
    """The column of lists with another separator is a column of classes."""
    lists = {"Mass": 12, f"Mass{separator}Edema": 12, f"Edema{separator} Mass": 12, "Edema": 12}
    found = guess_labels({"tags": lists, "more": {"a": 9, "a:b": 9, "b": 9}})
    assert (found.tasks, found.separator) == (("more", "tags"), separator)
    assert found.sets == {"tags": "tags"}


def test_more_columns_than_a_spec_can_name_are_refused() -> None:
    found = guess_labels({f"c{k}": KIND["kind"] for k in range(1001)})
    with pytest.raises(DataError, match="most 1,000 columns that may be labels, got 1,001; give"):
        found.read({}, TableFile(Path("x.csv"), {}, np.array([])))
