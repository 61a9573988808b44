"""What metrics say of a label, whatever its kind."""

import pytest

from mtcon_ray import metrics


@pytest.mark.parametrize(
    ("kind", "name"), [("classes", "accuracy"), ("set", "map"), ("number", "r2")]
)
def test_a_reading_finds_the_score_that_was_tracked(kind: str, name: str) -> None:
    values = {f"val/{name}/looks": 0.5, f"val/{name}_std/looks": 0.1, "val/accuracy": 0.9}
    assert metrics.score(kind, "val", "looks") in values
    assert metrics.score_std(kind, "val", "looks") in values
    assert metrics.reading(values, "val", "looks") == (0.5, 0.1)
    assert metrics.reading(values, "test", "looks") == (None, None)


def test_names_of_label_sets() -> None:
    assert metrics.average_precision("test", "looks") == "test/map_tie_aware/looks"
    assert metrics.f1("heldout", "micro", "looks") == "heldout/f1_micro/looks"
