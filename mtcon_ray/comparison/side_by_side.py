"""Two sweeps side by side: the values and test scores of their winners, and their specs."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from mtcon_ray.comparison.row import Row, columns, objectives
from mtcon_ray.comparison.summary import notes
from mtcon_ray.display import presentation as show
from mtcon_ray.display.tables import Table
from mtcon_ray.evaluation.intervals import Interval, difference
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import dump_spec, with_scheduler
from mtcon_ray.training.checkpoint import differences

# Sections that change no score.
NO_SCORE = ("name", "tracking", "storage")
Pair = tuple[SweepResults, SweepResults]


def side_by_side(pair: Pair, width: int | None = None) -> Iterator[str]:
    """Yields a comparison of two sweeps for a terminal with `width` columns, by default of any."""
    names = [each.name for each in pair]
    probes = [each.plan.evaluation for each in pair if each.plan]
    if len(set(probes)) > 1:
        other = f"they were measured by other probes (evaluation {probes[0]} and {probes[1]})"
        yield f"the scores of {names[0]} and {names[1]} cannot be compared: {other}"
    else:
        yield from _score_lines(winners(pair), width)
    if not (found := spec_differences(pair)):
        yield "their specs differ in no field that may change a score"
        return
    yield "differences of the specs:"
    fields = ((path, *map(show.value_text, values)) for path, values in found.items())
    lines = [[*map(show.one_line, texts)] for texts in fields]
    yield from Table(["field", *names], lines).lines(width)


def spec_differences(pair: Pair) -> dict[str, tuple[Any, Any]]:
    """Returns both values of each field that differs and may change a score, by path."""
    found = differences(*(dump_spec(with_scheduler(each.spec)) for each in pair))
    return {path: (a, b) for path, a, b in found if path.partition(".")[0] not in NO_SCORE}


def winners(pair: Pair) -> list[Row]:
    """Returns the sweeps, with the seeds of the winner's configuration alone."""
    best = [tuple(t for c in each.configurations()[:1] for t in c.trials) for each in pair]
    return [Row(s.name, replace(s, trials=own)) for s, own in zip(pair, best, strict=True)]


def paired_differences(rows: list[Row]) -> dict[tuple[str, str], Interval | None]:
    """Returns the second score minus the first by split and label.

    A difference is None unless both predicted the same items.
    """
    pairs = {place: [row.scores(*place) for row in rows] for place in columns(rows)}
    return {at: difference(b, a) if a and b else None for at, (a, b) in pairs.items()}


def _score_lines(rows: list[Row], width: int | None) -> Iterator[str]:
    titles = (f"test {show.one_line(text)}" for text in columns(rows).values())
    first = ["winner", "configuration", objectives(rows), *titles]
    gaps = paired_differences(rows)
    shown = [show.interval_text(gap, signed=True) for gap in gaps.values()]
    cells = zip(first, *(_side(row, gaps) for row in rows), ["", "", "", *shown], strict=True)
    yield from Table(["", *(row.title for row in rows), "second - first"], [*cells]).lines(width)
    yield from notes(rows).splitlines()


def _side(row: Row, places: Iterable[tuple[str, str]]) -> list[str]:
    """Returns the cells of a sweep: its winner, configuration, value and scores."""
    best = row.results.configurations()[:1] if row.results else []
    scores = [row.score_text(*place) for place in places]
    if not best:
        return [show.NOTHING] * 3 + scores
    value = show.accuracy_text(best[0].value, best[0].spread)
    return [best[0].trials[0].name, show.configuration_text(best[0].params), value, *scores]
