"""Tables of means with their intervals: three columns per mean in a CSV, one for readers."""

import math
from collections.abc import Iterable

import pandas as pd

from mtcon_ray.display.presentation import ONE_SEED
from mtcon_ray.evaluation.intervals import Interval

LOW, HIGH = ", low", ", high"


def percent_of(interval: Interval | None) -> Interval | None:
    """Returns the interval of a fraction in percent."""
    if interval is None:
        return None
    value, low, high = (100 * number for number in interval[:3])
    return Interval(value, low, high, interval.over_seeds)


def interval_columns(name: str, interval: Interval | None) -> dict[str, float | None]:
    """Returns the columns of a mean: the mean, and the ends of its interval if it has ends."""
    if interval is None:
        return {name: None, name + LOW: None, name + HIGH: None}
    low, high = (end if math.isfinite(end) else None for end in interval[1:3])
    return {name: interval.value, name + LOW: low, name + HIGH: high}


def readable(table: pd.DataFrame, digits: int = 1) -> pd.DataFrame:
    """Returns a table for readers, with each mean's interval in square brackets."""
    found = table.copy()
    for low in [column for column in table if str(column).endswith(LOW)]:
        name = str(low).removesuffix(LOW)
        ends = zip(table[name], table[low], table[name + HIGH], strict=True)
        found[name] = [_text(numbers, digits) for numbers in ends]
        found = found.drop(columns=[low, name + HIGH])
    return found


def _text(numbers: Iterable[float], digits: int) -> str:
    value, low, high = numbers
    if pd.isna(value):
        return ""
    if pd.isna(low):
        return f"{value:.{digits}f}{ONE_SEED}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
