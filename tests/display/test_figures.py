"""Axis scale of the figure of a searched field."""

import pytest

from mtcon_ray.display.figures import axis_scale
from mtcon_ray.spec.space import Dimension, Value


@pytest.mark.parametrize(
    ("kind", "values", "scale"),
    [
        ("loguniform", [0.1, 1.0], "log"),
        ("uniform", [0.1, 1.0], "linear"),
        ("int", [1, 100], "linear"),
        ("grid", [0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0], "log"),
        ("grid", [16, 32, 64, 128], "linear"),
        ("grid", [16, 160], "log"),
        ("grid", [0.0, 0.01, 0.1, 1.0], "linear"),
        ("choice", [10, 1000], "log"),
        ("choice", ["learned", "equal"], "categorical"),
        ("choice", [None, 1.0, 2.0], "categorical"),
        ("choice", [True, False], "categorical"),
    ],
)
def test_scale_follows_the_dimension_or_its_values(
    kind: str, values: list[Value], scale: str
) -> None:
    """The scale is logarithmic for log ranges and for wide lists of positive numbers."""
    assert axis_scale(Dimension.model_validate({kind: values}), values) == scale
