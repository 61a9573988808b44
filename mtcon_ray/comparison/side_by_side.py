"""Two sweeps side by side: the values and test scores of their winners, and their specs."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
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


@dataclass(frozen=True)
class SideBySide:
    """A comparison of two sweeps. A difference is the second's score minus the first's."""

    pair: tuple[SweepResults, SweepResults]

    @cached_property
    def differences(self) -> dict[str, tuple[Any, Any]]:
        """Both values of each field that differs and may change a score, by path."""
        found = differences(*(dump_spec(with_scheduler(each.spec)) for each in self.pair))
        return {path: (a, b) for path, a, b in found if path.partition(".")[0] not in NO_SCORE}

    @cached_property
    def why_not(self) -> str | None:
        """The reason why no scores are compared, or None."""
        probes = [each.plan.evaluation for each in self.pair if each.plan]
        if len(set(probes)) < 2:
            return None
        return "they were measured by other probes (evaluation {} and {})".format(*probes)

    @cached_property
    def rows(self) -> list[Row]:
        """The sweeps, with the seeds of the winner's configuration alone."""
        best = [[t for c in each.configurations()[:1] for t in c.trials] for each in self.pair]
        pairs = zip(self.pair, best, strict=True)
        return [Row(each.name, replace(each, trials=tuple(trials))) for each, trials in pairs]

    @cached_property
    def gaps(self) -> dict[tuple[str, str], Interval | None]:
        """The paired difference by split and label, None unless both predicted the same items."""
        found: dict[tuple[str, str], Interval | None] = {}
        for place in columns(self.rows) if self.why_not is None else ():
            first, second = (row.scores(*place) for row in self.rows)
            found[place] = difference(second, first) if first and second else None
        return found

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Yields the comparison for a terminal with `width` columns, of any width by default."""
        names = [each.name for each in self.pair]
        if self.why_not:
            yield f"the scores of {names[0]} and {names[1]} cannot be compared: {self.why_not}"
        else:
            titles = (f"test {show.one_line(text)}" for text in columns(self.rows).values())
            first = ["winner", "configuration", objectives(self.rows), *titles]
            gaps = [show.interval_text(gap, signed=True) for gap in self.gaps.values()]
            sides = (_side(row, self.gaps) for row in self.rows)
            cells = zip(first, *sides, ["", "", "", *gaps], strict=True)
            yield from Table(["", *names, "second - first"], [*cells]).lines(width)
            yield from notes(self.rows).splitlines()
        if not self.differences:
            yield "their specs differ in no field that may change a score"
            return
        yield "differences of the specs:"
        fields = ((path, *map(show.value_text, pair)) for path, pair in self.differences.items())
        lines = [[*map(show.one_line, texts)] for texts in fields]
        yield from Table(["field", *names], lines).lines(width)


def _side(row: Row, places: Iterable[tuple[str, str]]) -> list[str]:
    """Returns the cells of a sweep: its winner, configuration, value and scores."""
    best = row.results.configurations()[:1] if row.results else []
    scores = [row.score_text(*place) for place in places]
    if not best:
        return [show.NOTHING] * 3 + scores
    value = show.accuracy_text(best[0].value, best[0].spread)
    return [best[0].trials[0].name, show.configuration_text(best[0].params), value, *scores]
