"""Tables of means with intervals, for programs and for readers."""

import math

import pandas as pd

from experiments.reproduction.interval_table import interval_columns, percent_of, readable
from mtcon_ray.evaluation.intervals import Interval


def test_three_columns_for_programs_and_one_for_readers() -> None:
    intervals = [Interval(0.5, 0.25, 0.75, True), Interval(0.5, -math.inf, math.inf, False), None]
    table = pd.DataFrame(
        {"x": i, **interval_columns("a (%)", percent_of(each))} for i, each in enumerate(intervals)
    )
    assert list(table) == ["x", "a (%)", "a (%), low", "a (%), high"]
    assert table.iloc[0].tolist() == [0, 50.0, 25.0, 75.0]
    found = readable(table)
    assert list(found) == ["x", "a (%)"]
    assert found["a (%)"].tolist() == ["50.0 [25.0, 75.0]", "50.0¹", ""]
    assert len(table.columns) == 4
