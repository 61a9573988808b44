"""The state of a running sweep: its trials, the best trial and the time left."""

from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from mtcon_ray.base.status import Status
from mtcon_ray.display.presentation import accuracy_text, duration_text

if TYPE_CHECKING:
    from mtcon_ray.plan.plan import Plan


@dataclass
class TrialProgress:
    """A trial."""

    configuration: str = ""
    epoch: int = 0
    epochs: int = 0
    value: float | None = None
    status: Status = Status.RUNNING


@dataclass
class SweepProgress:
    """All trials by name. `now` is the time of an event in seconds.

    `trained` counts the epochs of this command, from `began` to `last`.
    """

    name: str
    plan: "Plan"
    trials: dict[str, TrialProgress] = field(default_factory=dict)
    trained: int = 0
    began: float | None = None
    last: float = 0.0

    def start(self, name: str, configuration: str, epochs: int, now: float) -> None:
        """Starts a trial, or resumes it with the epochs and the value it has."""
        self.began = now if self.began is None else self.began
        before = self._trial(name)
        self.trials[name] = TrialProgress(configuration, before.epoch, epochs, before.value)

    def report(self, name: str, epoch: int, epochs: int, value: float | None, now: float) -> None:
        """Records a completed epoch. `value` is None without a probe."""
        trial = self._trial(name)
        self.trained += max(0, epoch - trial.epoch)
        trial.epoch, trial.epochs, self.last = epoch, epochs, now
        if value is not None:
            best = trial.value if self.plan.select == "best" else None
            trial.value = value if best is None else max(best, value)

    def end(self, name: str, status: Status, value: float | None) -> TrialProgress:
        """Records that a trial has ended or waits, and returns the trial."""
        trial = self._trial(name)
        trial.value = trial.value if value is None else value
        trial.status = status
        return trial

    def epochs_left(self) -> float:
        """Returns the epochs left. A future trial has the mean number of those of ended trials."""
        trials = self._all
        if self.plan.epochs_total:
            mean = self.plan.epochs_total / self.plan.num_trials
            done = (max(mean, t.epoch) if t.status is Status.FAILED else t.epoch for t in trials)
            return max(0, self.plan.epochs_total - sum(done))
        over = [t.epoch for t in trials if t.status in (Status.FINISHED, Status.PRUNED)]
        begun = [t for t in trials if t.status in (Status.RUNNING, Status.INTERRUPTED)]
        left = max(0, self.plan.num_trials - len(trials)) * fmean(over or [self.plan.epochs])
        return left + sum(max(0, t.epochs - t.epoch) for t in begun)

    def seconds_left(self) -> float | None:
        """Returns the time left at the pace of this command so far, None where unknown."""
        left = self.epochs_left()
        if self.began is None or not self.trained or not left:
            return None
        return left * (self.last - self.began) / self.trained

    def bar(self, width: int) -> str:
        """Returns a bar of the share of epochs that are done."""
        done = sum(trial.epoch for trial in self._all)
        filled = int(width * done / max(1, done + self.epochs_left()))
        return "█" * filled + "░" * (width - filled)

    def standing_text(self, running: bool = True) -> str:
        """Returns how many trials are done, the best value and, of a running sweep, the time left.

        The best value is among the finished trials, else among all.
        """
        done = sum(trial.status.is_final for trial in self._all)
        parts = [f"{done}/{self.plan.num_trials} done"]
        valued = [trial for trial in self._all if trial.value is not None]
        best = max(valued, key=lambda t: (t.status == Status.FINISHED, t.value), default=None)
        if best is not None:
            brackets = f" ({best.configuration})" if best.configuration else ""
            parts.append(f"best {accuracy_text(best.value)}{brackets}")
        if running and done < self.plan.num_trials and (left := self.seconds_left()) is not None:
            parts.append(f"about {duration_text(left)} left")
        return "; ".join(parts)

    @property
    def _all(self) -> list[TrialProgress]:
        # A copy: the line is redrawn in another thread, which may be at any time.
        return list(self.trials.values())

    def _trial(self, name: str) -> TrialProgress:
        # A resumed sweep may end a trial not started by this command.
        return self.trials.setdefault(name, TrialProgress(epochs=self.plan.epochs))
