"""Printed values and inconsistencies of the papers."""

import pytest

from experiments.reproduction.data import DATA_SETS
from experiments.reproduction.paper import inconsistencies, paper_values, values_of


def test_every_printed_value_is_there_once() -> None:
    values = paper_values()
    assert len(values) == 361
    keys = [(v.paper, v.table, v.data, v.method, v.label, v.metric, v.is_held_out) for v in values]
    assert len(set(keys)) == len(keys)
    assert all(0 < v.value < 100 for v in values)


def test_labels_are_those_of_the_data_sets() -> None:
    for value in paper_values():
        assert value.label in DATA_SETS[value.data].labels
        # MEDIC holds out its tasks in turn.
        is_own = value.label in DATA_SETS[value.data].held_out
        assert value.is_held_out == is_own or value.data == "medic"


def test_values_of_one_table() -> None:
    by_method = {value.method: value for value in values_of("MSCon", 3)}
    assert set(by_method) == {"XEnt MT", "MSCon"}
    mscon = by_method["MSCon"]
    assert (mscon.value, mscon.deviation, mscon.label) == (42.62, 1.52, "brand")
    assert mscon.is_held_out
    assert {value.deviation for value in values_of("MultiSupCon", 1)} == {None}
    with pytest.raises(ValueError, match="no table 7 of MTCon"):
        values_of("MTCon", 7)


def test_inconsistencies_cite_papers_and_say_what_was_chosen() -> None:
    papers = {"CCN", "MSCon", "MTCon", "MultiSupCon", "AMCL"}
    found = inconsistencies()
    assert len(found) > 15
    assert {paper for each in found for paper in each.papers} == papers
    assert all(each.place and each.text.endswith(".") and each.choice for each in found)


def test_the_copy_error_that_is_listed_is_in_the_values() -> None:
    """MTCon's table 3 has another column's value; its table 6 and MSCon's table 2 do not."""
    of = {
        (v.paper, v.table, v.method, v.label): v.value for v in paper_values() if v.data == "medic"
    }
    assert of["MTCon", 3, "SupCon", "humanitarian"] == 74.89
    assert of["MTCon", 6, "SupCon Humanitarian", "humanitarian"] == 80.36
    assert of["MTCon", 6, "SupCon Humanitarian", "disaster_types"] == 74.89
