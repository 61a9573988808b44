"""The state of a running sweep as its watcher needs it: who runs, who is best, how long yet."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mtcon_ray import metrics

RUNNING = "RUNNING"


@dataclass
class Row:
    """One trial. Times are seconds of the caller's clock."""

    name: str
    started: float
    params: dict[str, Any] = field(default_factory=dict)
    epoch: int = 0
    epochs: int = 0
    value: float | None = None
    state: str = RUNNING
    reason: str | None = None
    first_report: tuple[float, int] | None = None
    last_report: tuple[float, int] | None = None

    @property
    def pace(self) -> tuple[float, int]:
        """Seconds and the epochs that they took; a resumed trial's earlier epochs don't count."""
        if self.first_report is None or self.last_report is None:
            return 0.0, 0
        (begin, first), (end, last) = self.first_report, self.last_report
        return (end - begin, last - first) if last > first else (end - self.started, last)


class Board:
    """All trials by name, told of each event; draws nothing and reads no clock."""

    def __init__(self, name: str, num_trials: int, epochs: int) -> None:
        self.name = name
        self.num_trials = num_trials
        self.epochs = epochs
        self.rows: dict[str, Row] = {}

    def suggest(self, trial: str, params: Mapping[str, Any], now: float) -> None:
        """A trial begins or goes on."""
        epochs = int(params.get("train.epochs", self.epochs))
        self.rows[trial] = Row(trial, now, dict(params), epochs=epochs)

    def report(
        self, trial: str, epoch: int, epochs: int, values: Mapping[str, float], now: float
    ) -> Row:
        """An epoch of a trial is done; the row as it is now."""
        row = self._row(trial, now)
        row.epoch, row.epochs = epoch, epochs
        row.value = values.get(metrics.OBJECTIVE, row.value)
        row.first_report = row.first_report or (now, epoch)
        row.last_report = (now, epoch)
        return row

    def end(
        self, trial: str, status: str, value: float | None, reason: str | None, now: float
    ) -> Row:
        """A trial is over, for now or for good; the row as it is now."""
        row = self._row(trial, now)
        row.state, row.reason = status, reason
        row.value = row.value if value is None else value
        return row

    @property
    def running(self) -> list[Row]:
        """Trials in training, in order of their names."""
        return sorted((r for r in self.rows.values() if r.state == RUNNING), key=lambda r: r.name)

    @property
    def ended(self) -> list[Row]:
        """Trials that are over, best first: full budget, then stopped early, then failed."""
        rank = {"FINISHED": 0, "PRUNED": 1, "INTERRUPTED": 2, "FAILED": 3}
        done = [row for row in self.rows.values() if row.state != RUNNING]
        return sorted(done, key=lambda r: (rank.get(r.state, 4), -(r.value or 0.0), r.name))

    @property
    def num_done(self) -> int:
        """Trials that need no more training."""
        return sum(row.state in ("FINISHED", "PRUNED", "FAILED") for row in self.rows.values())

    @property
    def best(self) -> Row | None:
        """The leader among those with their full budget, else among all."""
        rows = [row for row in self.rows.values() if row.value is not None]
        return max(rows, key=lambda r: (r.state == "FINISHED", r.value or 0.0), default=None)

    def seconds_left(self) -> float | None:
        """At the pace so far, with as many at a time as now; None where nobody knows."""
        paces = [row.pace for row in self.rows.values()]
        seconds, epochs = sum(s for s, _ in paces), sum(e for _, e in paces)
        if not epochs:
            return None
        over = [row.epoch for row in self.rows.values() if row.state in ("FINISHED", "PRUNED")]
        usual = sum(over) / len(over) if over else self.epochs
        unseen = max(0, self.num_trials - len(self.rows))
        running = self.running
        left = sum(max(0, (row.epochs or self.epochs) - row.epoch) for row in running)
        total = left + unseen * usual
        return total * seconds / epochs / max(1, len(running)) if total else None

    def _row(self, trial: str, now: float) -> Row:
        return self.rows.setdefault(trial, Row(trial, now))
