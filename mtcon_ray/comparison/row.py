"""Results of a system in a comparison: finished trainings, scores and their intervals."""

from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from mtcon_ray.base import metrics
from mtcon_ray.base.status import Status
from mtcon_ray.display.presentation import accuracy_text, interval_text, label_title
from mtcon_ray.display.ranking import resampled
from mtcon_ray.evaluation.intervals import Interval, Scores, score_interval
from mtcon_ray.records.results import SweepResults, TrialResult


@dataclass(frozen=True)
class Row:
    """A system with its sweep's results, or the reason for missing results.

    `tuned` has the sweeps behind the choice of its configuration, in order.
    """

    title: str
    results: SweepResults | None
    reason: str | None = None
    tuned: tuple[SweepResults, ...] = ()

    @property
    def finished(self) -> list[TrialResult]:
        """Returns the system's finished trainings, a training per seed."""
        trials = self.results.trials if self.results else ()
        return [t for t in trials if t.status == Status.FINISHED and t.full_budget]

    @property
    def why(self) -> str:
        """Returns the reason why no training has finished."""
        trials = self.results.trials if self.results else ()
        return self.reason or next((t.reason for t in trials if t.reason), "unfinished")

    @property
    def features(self) -> tuple[int, ...]:
        """Returns the numbers of features seen by the probes, () if no number was recorded."""
        recorded = (t.last_metrics.get(metrics.PROBE_FEATURES) for t in self.finished)
        return tuple(sorted({int(width) for width in recorded if width is not None}))

    def readings(self, split: str, label: str) -> list[metrics.Reading]:
        """Returns a label's score and its bootstrap deviation for each seed."""
        name = self._names.get(label, label)
        return [metrics.reading(t.last_metrics, split, name) for t in self.finished]

    def reading(self, split: str, label: str) -> metrics.Reading:
        """Returns the means over seeds of a label's score and of its bootstrap deviation."""
        found = self.readings(split, label)
        values = [reading.value for reading in found if reading.value is not None]
        stds = [reading.std for reading in found if reading.std is not None]
        return metrics.Reading(fmean(values) if values else None, fmean(stds) if stds else None)

    def scores(self, split: str, label: str) -> Scores | None:
        """Returns a label's score in each resample of the test items, None without predictions."""
        return self._scores.get((split, self._names.get(label, label)))

    def interval(self, split: str, label: str) -> Interval | None:
        """Returns a label's mean score over seeds with its interval, None without predictions."""
        found = self.scores(split, label)
        return None if found is None else score_interval(found)

    def score_text(self, split: str, label: str) -> str:
        """Returns a label's mean score over seeds, with its interval if there are predictions."""
        value, interval = self.reading(split, label).value, self.interval(split, label)
        if value is None or interval is None:
            return accuracy_text(value)
        return interval_text(interval._replace(value=value))

    @cached_property
    def _names(self) -> dict[str, str]:
        """The name of each label in the system's metrics."""
        return self.results.labels.slugs if self.results else {}

    @cached_property
    def _scores(self) -> dict[tuple[str, str], Scores]:
        # Cached: resampling label sets of 4,000 items takes seconds, and the tables are rewritten
        # after each system.
        return resampled(self.results, self.finished) if self.results else {}


def columns(rows: list[Row]) -> dict[tuple[str, str], str]:
    """Returns column headings by (split, label): tasks on test, then held-out labels."""
    found: dict[tuple[str, str], str] = {}
    for labels in (row.results.labels for row in rows if row.results):
        for label, (split, _) in labels.places.items():
            held_out = ", held out" if split == "heldout" else ""
            found.setdefault((split, label), label_title(labels, label) + held_out)
    return found


def objectives(rows: list[Row]) -> str:
    """Returns the metric name of the systems' objective, or several if their task kinds differ."""
    names = [row.results.labels.objective for row in rows if row.results]
    return ", ".join(sorted(set(names))) or metrics.MEAN_ACCURACY
