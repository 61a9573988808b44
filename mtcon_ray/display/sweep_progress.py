"""The state of a running sweep: its trials, the best trial and the time left."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mtcon_ray.base.metrics import MEAN_ACCURACY
from mtcon_ray.base.status import Status
from mtcon_ray.display.presentation import accuracy_text, duration_text

if TYPE_CHECKING:
    from mtcon_ray.spec.evaluate import Select

# Values are ranked by the shown digits. Equal values are in order of names.
DIGITS = 3


@dataclass
class TrialProgress:
    """A trial."""

    name: str
    configuration: str = ""
    epoch: int = 0
    epochs: int = 0
    value: float | None = None
    status: Status = Status.RUNNING
    reason: str | None = None


@dataclass
class SweepProgress:
    """All trials by name. `now` is the time of an event in seconds.

    `trained` counts the epochs of this command, from `began` to `last`.
    """

    name: str
    num_trials: int
    epochs: int
    objective: str = MEAN_ACCURACY
    select: "Select" = "last"
    trials: dict[str, TrialProgress] = field(default_factory=dict)
    trained: int = 0
    began: float | None = None
    last: float = 0.0

    def start(self, name: str, configuration: str, epochs: int, now: float) -> None:
        """Starts a trial, or resumes it with the epochs and the value it has."""
        self.began = now if self.began is None else self.began
        before = self._trial(name)
        self.trials[name] = TrialProgress(name, configuration, before.epoch, epochs, before.value)

    def report(self, name: str, epoch: int, epochs: int, value: float | None, now: float) -> None:
        """Records a completed epoch. `value` is None without a probe."""
        trial = self._trial(name)
        self.trained += max(0, epoch - trial.epoch)
        trial.epoch, trial.epochs, self.last = epoch, epochs, now
        if value is not None:
            best = trial.value if self.select == "best" else None
            trial.value = value if best is None else max(best, value)

    def end(
        self, name: str, status: Status, value: float | None, reason: str | None
    ) -> TrialProgress:
        """Records that a trial has ended or waits, and returns the trial."""
        trial = self._trial(name)
        trial.epochs = trial.epochs or self.epochs
        trial.value = trial.value if value is None else value
        trial.status, trial.reason = status, reason
        return trial

    @property
    def by_name(self) -> list[TrialProgress]:
        """All trials in order of their names."""
        # A copy: the table is redrawn in another thread, which may be at any time.
        return sorted(self.trials.values(), key=lambda trial: trial.name)

    @property
    def running(self) -> list[TrialProgress]:
        """Trials in training, in order of their names."""
        return [trial for trial in self.by_name if trial.status == Status.RUNNING]

    @property
    def ended(self) -> list[TrialProgress]:
        """Trials that are not running, by status, then best first. The best of all leads."""
        best = self.best

        def key(trial: TrialProgress) -> tuple[int, bool, float]:
            return trial.status.rank, trial is not best, -round(trial.value or 0.0, DIGITS)

        return sorted((t for t in self.by_name if t.status != Status.RUNNING), key=key)

    @property
    def num_done(self) -> int:
        """Number of trials that need no more training."""
        return sum(trial.status.is_final for trial in self.by_name)

    @property
    def best(self) -> TrialProgress | None:
        """The best trial among the finished trials, else among all, None without a value."""
        valued = [trial for trial in self.by_name if trial.value is not None]
        return max(valued, key=lambda t: (t.status == Status.FINISHED, t.value), default=None)

    def seconds_left(self) -> float | None:
        """Returns the time left at the pace of this command so far, None where unknown."""
        trials, running = self.by_name, self.running
        if self.began is None or not self.trained:
            return None
        over = [t.epoch for t in trials if t.status in (Status.FINISHED, Status.PRUNED)]
        usual = sum(over) / len(over) if over else self.epochs
        unseen = max(0, self.num_trials - len(trials))
        # Interrupted trials of an earlier command are resumed while anything runs.
        unfinished = [t for t in trials if t.status in (Status.RUNNING, Status.INTERRUPTED)]
        left = sum(max(0, (t.epochs or self.epochs) - t.epoch) for t in unfinished if running)
        total = left + unseen * usual
        return total * (self.last - self.began) / self.trained if total else None

    def done_text(self) -> str:
        """Returns the number of trials done."""
        return f"{self.num_done}/{self.num_trials} done"

    def best_text(self) -> str:
        """Returns the best value with its configuration, "" before the first value."""
        best = self.best
        if best is None:
            return ""
        brackets = f" ({best.configuration})" if best.configuration else ""
        return f"best {accuracy_text(best.value)}{brackets}"

    def left_text(self) -> str:
        """Returns the time left, "" where unknown or nothing is left."""
        left = self.seconds_left() if self.num_done < self.num_trials else None
        return "" if left is None else f"about {duration_text(left)} left"

    def standing_text(self) -> str:
        """Returns how many trials are done, the best value and the time left, for a log."""
        return "; ".join(filter(None, (self.done_text(), self.best_text(), self.left_text())))

    def _trial(self, name: str) -> TrialProgress:
        # A resumed sweep may end a trial not started by this command.
        return self.trials.setdefault(name, TrialProgress(name))
