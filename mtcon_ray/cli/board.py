"""The state of a running sweep as its watcher needs it: who runs, who is best, how long yet."""

from dataclasses import dataclass

from mtcon_ray.cli.events import Close, End, Event, Known, Report, Start, Suggest

RUNNING, FINISHED, INTERRUPTED = "RUNNING", "FINISHED", "INTERRUPTED"
# Values that look the same are in order of names.
DIGITS = 3


@dataclass
class Row:
    """One trial. Times are seconds of the sweep's clock."""

    name: str
    started: float
    configuration: str = ""
    epoch: int = 0
    epochs: int = 0
    value: float | None = None
    state: str = RUNNING
    reason: str | None = None
    begun: int = 0  # epochs that it had when it was given out
    first_report: tuple[float, int] | None = None
    last_report: tuple[float, int] | None = None

    @property
    def pace(self) -> tuple[float, int]:
        """Seconds and the epochs that they took; a resumed trial's earlier epochs don't count."""
        if self.first_report is None or self.last_report is None:
            return 0.0, 0
        (begin, first), (end, last) = self.first_report, self.last_report
        if last > first:
            return end - begin, last - first
        return end - self.started, last - self.begun


class Board:
    """All trials by name, told of each event; draws nothing and reads no clock."""

    def __init__(self, start: Start) -> None:
        self.name = start.name
        self.num_trials = start.num_trials
        self.epochs = start.epochs
        self.objective = start.objective
        self.select = start.select
        self.rows: dict[str, Row] = {}
        self._leader: str | None = None

    def tell(self, event: Event, now: float) -> None:
        """What has happened, at that time of the sweep's clock."""
        match event:
            case Suggest(trial, configuration, own):
                before = self.rows.get(trial, Row(trial, now))
                self.rows[trial] = Row(
                    trial, now, configuration, before.epoch, own or self.epochs, before.value,
                    begun=before.epoch,
                )  # fmt: skip
            case Known(trial, configuration, status, epoch, epochs, value, reason):
                self.rows[trial] = Row(
                    trial, now, configuration, epoch, epochs, value, status, reason
                )
            case Report():
                self._report(event, now)
            case End():
                self._end(event, now)
            case Close():
                self._leader = event.best

    @property
    def running(self) -> list[Row]:
        """Trials in training, in order of their names."""
        return sorted((r for r in self.rows.values() if r.state == RUNNING), key=lambda r: r.name)

    @property
    def ended(self) -> list[Row]:
        """Trials that are over, best first: full budget, then stopped early, then failed."""
        rank = {FINISHED: 0, "PRUNED": 1, INTERRUPTED: 2, "FAILED": 3}
        best = self.best

        def place(row: Row) -> tuple[int, bool, float, str]:
            value = -round(row.value or 0.0, DIGITS)
            return rank.get(row.state, 4), row is not best, value, row.name

        return sorted((r for r in self.rows.values() if r.state != RUNNING), key=place)

    @property
    def num_done(self) -> int:
        """Trials that need no more training."""
        return sum(row.state in (FINISHED, "PRUNED", "FAILED") for row in self.rows.values())

    @property
    def best(self) -> Row | None:
        """The leader among those with their full budget, else among all; at the end, as told."""
        if self._leader in self.rows:
            return self.rows[self._leader]
        rows = [row for row in self.rows.values() if row.value is not None]
        return max(rows, key=lambda r: (r.state == FINISHED, r.value or 0.0), default=None)

    def seconds_left(self) -> float | None:
        """At the pace so far, with as many at a time as now; None where nobody knows."""
        paces = [row.pace for row in self.rows.values()]
        seconds, epochs = sum(s for s, _ in paces), sum(e for _, e in paces)
        if not epochs:
            return None
        over = [row.epoch for row in self.rows.values() if row.state in (FINISHED, "PRUNED")]
        usual = sum(over) / len(over) if over else self.epochs
        unseen = max(0, self.num_trials - len(self.rows))
        running = self.running
        # Interrupted trials of an earlier run are given out again, if anything is.
        open_rows = [r for r in self.rows.values() if running and r.state in (RUNNING, INTERRUPTED)]
        left = sum(max(0, (row.epochs or self.epochs) - row.epoch) for row in open_rows)
        total = left + unseen * usual
        return total * seconds / epochs / max(1, len(running)) if total else None

    def _report(self, event: Report, now: float) -> None:
        row = self._row(event.trial, now)
        row.epoch, row.epochs = event.epoch, event.epochs
        if event.value is not None:
            before = row.value if self.select == "best" else None
            row.value = event.value if before is None else max(before, event.value)
        row.first_report = row.first_report or (now, event.epoch)
        row.last_report = (now, event.epoch)

    def _end(self, event: End, now: float) -> None:
        seen = event.trial in self.rows
        row = self._row(event.trial, now)
        row.epochs = row.epochs or self.epochs
        epoch, epochs = event.after or (
            (row.epochs, row.epochs) if event.status == FINISHED else (row.epoch, row.epochs)
        )
        if seen and epoch > row.epoch:
            self._report(Report(event.trial, epoch, epochs), now)
        row.epoch, row.state, row.reason = epoch, event.status, event.reason
        row.value = row.value if event.value is None else event.value

    def _row(self, trial: str, now: float) -> Row:
        return self.rows.setdefault(trial, Row(trial, now))
