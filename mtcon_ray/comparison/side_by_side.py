"""Two sweeps side by side: the values and test scores of their winners, and their specs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from mtcon_ray.comparison.row import Row, columns
from mtcon_ray.comparison.summary import notes
from mtcon_ray.display import presentation as show
from mtcon_ray.display.results_table import trial_record
from mtcon_ray.display.tables import Table
from mtcon_ray.evaluation.intervals import Interval, difference
from mtcon_ray.records.results import SweepResults, first_tags
from mtcon_ray.spec.run_spec import dump_spec, with_scheduler
from mtcon_ray.tracking.provenance import FINGERPRINT
from mtcon_ray.training.checkpoint import differences

# Sections that change no score.
NO_SCORE = ("name", "tracking", "storage")
# Fields that change the fingerprint of the data, but not the images of the test split.
SAME_IMAGES = (
    "data.tasks", "data.held_out", "data.multi_hot", "data.continuous", "data.label_noise",
    "data.store_size", "views.size",
)  # fmt: skip


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
        if len(set(probes)) > 1:
            return "they were measured by other probes (evaluation {} and {})".format(*probes)
        data = [first_tags(each.folder).get(FINGERPRINT) for each in self.pair]
        fields = [p for p in self.differences if p.startswith("data.") or p == "views.size"]
        is_explained = fields and all(path.startswith(SAME_IMAGES) for path in fields)
        if is_explained or None in data or data[0] == data[1]:
            return None
        return "their images, labels or splits differ (data fingerprints {} and {})".format(*data)

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

    def record(self) -> dict[str, Any]:
        """Returns the comparison as plain data, for --json."""
        winners = [(each, each.winner) for each in self.pair]
        scores = {
            f"{split}/{label}": {
                "values": [row.reading(split, label).value for row in self.rows],
                "intervals": [i and i[1:3] for i in (r.interval(split, label) for r in self.rows)],
                "difference": gap and gap._asdict(),
            }
            for (split, label), gap in self.gaps.items()
        }
        return {
            "sweeps": [{"name": s.name, "winner": w and trial_record(s, w)} for s, w in winners],
            "not_compared": self.why_not,
            "scores": scores,
            "spec_differences": self.differences,
        }

    def lines(self, width: int | None = None) -> Iterator[str]:
        """Yields the comparison for a terminal with `width` columns, of any width by default."""
        names = [each.name for each in self.pair]
        if self.why_not:
            yield f"the scores of {names[0]} and {names[1]} cannot be compared: {self.why_not}"
        else:
            yield from Table(["", *names, "second - first"], list(self._cells())).lines(width)
            yield from notes(self.rows).splitlines()
        if not self.differences:
            yield "their specs differ in no field that may change a score"
            return
        yield "differences of the specs:"
        found = self.differences.items()
        cells = [[show.one_line(path), *map(_value_text, values)] for path, values in found]
        yield from Table(["field", *names], cells).lines(width)

    def _cells(self) -> Iterator[list[str]]:
        """Yields the rows of the table of winners and scores."""
        winners = [each.winner for each in self.pair]
        yield ["winner", *(winner.name if winner else show.NOTHING for winner in winners), ""]
        values = [
            {path: value for path, _, value in differences({}, dump_spec(each.spec))}
            | (winner.params if winner else dict.fromkeys(each.spec.search.space))
            for each, winner in zip(self.pair, winners, strict=True)
        ]
        searched = dict.fromkeys(path for each in self.pair for path in each.spec.search.space)
        for path, name in show.short_paths(searched).items():
            yield [name, *(_value_text(each.get(path)) for each in values), ""]
        for name in dict.fromkeys(each.labels.objective for each in self.pair):
            yield [name, *(_objective_text(each, name) for each in self.pair), ""]
        for place, heading in columns(self.rows).items():
            gap = show.interval_text(self.gaps[place], signed=True)
            name = f"test {show.one_line(heading)}"
            yield [name, *(row.score_text(*place) for row in self.rows), gap]


def _value_text(value: Any) -> str:
    return show.NOTHING if value is None else show.one_line(show.value_text(value))


def _objective_text(results: SweepResults, name: str) -> str:
    """Returns the winner's mean over its seeds, if the sweep has this objective."""
    found = results.configurations()[:1] if results.labels.objective == name else []
    return "".join(show.accuracy_text(c.value, c.spread) for c in found) or show.NOTHING
