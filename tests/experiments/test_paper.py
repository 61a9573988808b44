"""Printed values and inconsistencies of the papers."""

from experiments.reproduction.data import DATA_SETS
from experiments.reproduction.paper import inconsistencies, paper_values


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


def test_inconsistencies_cite_papers_and_say_what_was_chosen() -> None:
    papers = {"CCN", "MSCon", "MTCon", "MultiSupCon", "AMCL"}
    found = inconsistencies()
    assert len(found) > 15
    assert {paper for each in found for paper in each.papers} == papers
    assert all(each.place and each.text.endswith(".") and each.choice for each in found)
