"""Axis scale of the figure of a searched field."""

import pytest

from mtcon_ray.display.figures import axis_scale
from mtcon_ray.spec.space import Value


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        ([0.03, 0.05, 0.07, 0.1, 0.2, 0.5, 1.0], "log"),
        ([16, 160], "log"),
        ([16, 32, 64, 128], "linear"),
        ([0.0, 0.01, 0.1, 1.0], "linear"),
        (["learned", "equal"], "categorical"),
        ([None, 1.0, 2.0], "categorical"),
        ([True, False], "categorical"),
    ],
)
def test_wide_ranges_of_positive_numbers_are_logarithmic(values: list[Value], scale: str) -> None:
    assert axis_scale(values) == scale
