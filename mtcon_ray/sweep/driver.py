"""The driver of a sweep: it chooses the next trial, stops trials, and writes the record.

An executor trains the trials: `sweep/here.py` in this process, `sweep/on_ray.py` by Ray Tune. It
makes three calls: `next`, `reported` and `ended`. It also calls `tick` of the event log at least
once per second, or sets its `lag` to 0. All decisions follow from the event log, so a resumed
driver decides as an uninterrupted driver.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import checkpoint_folder, trial_name
from mtcon_ray.base.status import Status
from mtcon_ray.errors import SpecError
from mtcon_ray.records.events import Lost
from mtcon_ray.records.results import SweepResults, by_configuration
from mtcon_ray.sweep.halving import Rung
from mtcon_ray.sweep.record import SweepRecord, Trial
from mtcon_ray.sweep.stopping import make_stopping
from mtcon_ray.sweep.suggester import Suggester
from mtcon_ray.training.checkpoint import discard_network

# Time for trials to write a checkpoint after a signal, before Tune ends them.
GRACE_SECONDS = 30.0


def removable_trials(results: SweepResults, keep: int) -> list[str]:
    """Returns the ended trials that are not among the best and can no longer win.

    If trials are repeated, the configuration with the best mean over its seeds wins by its best
    seed. So the best seed of each configuration stays until all its seeds have ended. A failed seed
    counts as open, because it may be tried again.
    """
    ended = [trial for trial in results.ranked() if trial.status.is_final]
    kept = {trial.name for trial in (*ended[:keep], results.winner) if trial is not None}
    decided = [trial for trial in ended if trial.status is not Status.FAILED]
    repeats = results.spec.search.repeats
    kept |= {c.trials[0].name for c in by_configuration(decided) if len(c.trials) < repeats}
    return [trial.name for trial in ended if trial.name not in kept]


@dataclass(frozen=True)
class Task:
    """A trial to train: `values` are its searched values, `repeat` is the number of its seed.

    `until` is the epoch after which it waits for other trials, None if it trains to its end. The
    event log has its epochs up to `logged`. `tries` grows with each process of the trial.
    """

    trial: str
    values: Mapping[str, Any]
    repeat: int
    until: int | None
    logged: int
    tries: int


class Driver:
    """The decisions and the record of a sweep. Its methods are called in a single thread.

    Its methods raise StorageError if the event log cannot be written.
    """

    def __init__(self, record: SweepRecord, callbacks: Callbacks, *, max_concurrent: int) -> None:
        self.record, self.callbacks = record, callbacks
        self.folder, self.spec = record.folder, record.spec
        # The number of trials of the whole sweep: configurations times repeats.
        self.num_trials = self.spec.search.num_planned_trials
        self.stop_reason: str | None = None
        self.deadline = math.inf  # of a stop: the end of the time for checkpoints
        self._begun = time.monotonic()
        self._progress: dict[str, float] = {}  # times of the last progress by the trial's name
        self._max_concurrent = max_concurrent
        self._suggester = Suggester(self.spec.search, self.spec.seed, record.earlier)
        self._stopping = make_stopping(self.spec.scheduler)
        self._rung = Rung(self.spec.scheduler, self.num_trials, self.spec.evaluate.every)
        self._queue: list[Trial] = []  # to be trained before new trials
        self._live: dict[str, int | None] = {}  # by name: the epoch of the rung
        self._discarded: set[str] = set()  # trials whose networks `storage.keep` has removed

    @property
    def trials(self) -> list[Trial]:
        """All trials that have begun, by number."""
        return list(self.record.trials.values())

    @property
    def stopping(self) -> bool:
        """True if the sweep must end: no trial is given out, running trials are interrupted."""
        return self.stop_reason is not None

    @property
    def is_over(self) -> bool:
        """True if no trial is in training, and `next` will never return another."""
        return not self._live and (self.stopping or self._limit is not None or not self._is_left())

    @property
    def _limit(self) -> str | None:
        """The reached limit in hours, in words, or None below the limit."""
        hours = self.spec.search.max_hours
        if hours is None or time.monotonic() - self._begun < 3600 * hours:
            return None
        return f"search.max_hours {hours:g} is reached"

    def progressed(self, name: str) -> None:
        """Counts a trial's time without a new epoch from now on."""
        self._progress[name] = time.monotonic()

    def has_stalled(self, name: str) -> bool:
        """Returns True if a trial in training has no new epoch for `search.stall_minutes`."""
        minutes = self.spec.search.stall_minutes
        return minutes is not None and time.monotonic() - self._progress[name] > 60 * minutes

    def _is_left(self) -> bool:
        """Returns True if a trial waits to be given out, or another will be suggested."""
        is_new = max((trial.number for trial in self.trials), default=-1) + 1 < self.num_trials
        return bool(self._queue) or is_new or any(map(self._rung.waits, self.trials))

    def begin(self, *, retry_failed: bool = False) -> None:
        """Takes over the trials of earlier drivers.

        Ends trials that were killed between their last epoch, or the decision to stop them, and the
        record of their end. With `retry_failed` failed trials are trained again, from their start.
        """
        # Of open trials, those whose driver was killed before their end was in the log.
        stopped = {name for name, epoch in self.record.reports if self._stops(name, epoch)}
        for trial in self.trials:
            if trial.is_open and self.record.is_done(trial):
                self._end(trial, Status.FINISHED)
            elif trial.is_open and trial.name in stopped:
                self._end(trial, Status.PRUNED)
            again, waits = retry_failed and trial.status is Status.FAILED, self._rung.waits(trial)
            if again or (trial.is_open and not waits):
                self._queue.append(trial)
            standing = Status.WAITING if waits else Status.INTERRUPTED
            self.callbacks.on_known(trial, (standing if trial.is_open else trial.status).name)
        if failed := [trial.name for trial in self._queue if not trial.is_open]:
            self.callbacks.on_note(f"trained again: {', '.join(failed)}")

    def _stops(self, name: str, epoch: int) -> bool:
        """Tells early stopping the value of a probe. Returns True if the trial stops at it."""
        rule, trial = self._stopping, self.record.trials[name]
        return bool(rule and rule.stops(name, epoch / trial.epochs, trial.values[epoch]))

    def next(self) -> Task | None:
        """Returns the next trial to train, or None if none can begin now (see `is_over`).

        The start is in the record before the trial is returned.
        """
        if self.stopping or self._limit is not None or len(self._live) >= self._max_concurrent:
            return None
        if (trial := self._next_trial()) is None:
            return None
        until = self._rung.until(trial)
        self._live[trial.name] = until
        self.progressed(trial.name)
        self.callbacks.on_suggest(trial.name, trial.params)
        repeat = trial.seed - self.spec.seed
        return Task(trial.name, trial.params, repeat, until, trial.last_epoch, trial.num_tries)

    def _next_trial(self) -> Trial | None:
        if not self._queue:
            if trial := self._new_trial():
                return trial
            self._queue, over = self._rung.settled(self.trials, self._live)
            for trial in over:
                self._end(trial, Status.PRUNED)
                self._tidy(trial)
        if not self._queue:
            return None
        trial = self._queue.pop(0)
        self.record.reopen(trial)
        return trial

    def _new_trial(self) -> Trial | None:
        while True:
            trials = self.trials
            number = trials[-1].number + 1 if trials else 0
            if number >= self.num_trials:
                return None
            index, repeat = divmod(number, self.spec.search.repeats)
            # The seeds of a configuration are trials in succession.
            params = trials[-1].params if repeat else self._suggester.configuration(index, trials)
            if params is None:
                self.num_trials = number  # the space is exhausted
                return None
            try:
                return self.record.start(trial_name(number), params, index, repeat)
            except SpecError as error:  # values that do not fit together
                self._end(self.trials[-1], Status.FAILED, str(error))

    def reported(self, name: str, lines: list[str], *, done: bool = False) -> bool:
        """Records epochs of a trial, and returns False if the trial must stop now.

        `lines` are events of kind report in order of their epochs. Epochs in the log are left out.
        `done` says that the trial has ended by itself, so it cannot be stopped any more.
        """
        trial = self.record.trials[name]
        fresh = self.record.report(trial, lines)
        stops = [self._stops(name, each.epoch) for each in fresh if each.epoch in trial.values]
        if lines:
            self.progressed(name)  # also epochs in the log that are trained again
        if fresh:
            last = fresh[-1]
            self.callbacks.on_report(name, last.epoch, trial.epochs, dict(last.metrics))
        if any(stops) and not done and trial.is_open:
            self._end(trial, Status.PRUNED)
        return trial.is_open

    def ended(self, name: str, outcome: Status, reason: str | None = None) -> None:
        """Records that a trial is not in training any more. Its processes must have ended."""
        trial = self.record.trials[name]
        self._live.pop(name, None)
        # A process may be ended between two reports.
        if outcome is Status.RUNNING or (self.stopping and outcome is Status.WAITING):
            outcome = Status.INTERRUPTED
        if trial.is_open and self.record.is_done(trial) and outcome is not Status.FAILED:
            outcome = Status.FINISHED
        if trial.is_open and outcome is not Status.WAITING:
            self._end(trial, outcome, reason)
        if not trial.is_open:
            self._tidy(trial)
        elif outcome is Status.WAITING:
            self.callbacks.on_end(name, outcome.name, trial.value, None)

    def lost(self, name: str, reason: str, *, counts: bool = True) -> None:
        """Records that a trial's process was lost. The trial is tried again, or fails.

        With `counts` the loss counts towards `search.max_failures`.
        """
        trial = self.record.trials[name]
        if self.stopping or not trial.is_open or self.record.is_done(trial):
            self.ended(name, Status.INTERRUPTED)
        elif self._rung.waits(trial) and self._live.get(name, 0) is not None:
            self.ended(name, Status.WAITING)  # it has yet to train beyond the rung
        elif counts and trial.num_lost >= self.spec.search.max_failures:
            self.ended(name, Status.FAILED, reason)
        else:
            self.callbacks.on_note(f"{name}: {reason}; it is tried again from its last checkpoint")
            self._live.pop(name, None)
            self.record.append(Lost(trial=name, reason=reason[:4000], counts=counts))
            self._queue.append(trial)

    def release(self, reason: str) -> None:
        """Gives all running trials out again, after an error of the executor ended them."""
        for name in list(self._live):
            self.lost(name, reason, counts=False)

    def halt(self, reason: str) -> None:
        """Asks all trials to checkpoint and end. May be called in a signal handler."""
        if not self.stopping:
            self.stop_reason = reason
            self.deadline = time.monotonic() + GRACE_SECONDS

    def _end(self, trial: Trial, outcome: Status, reason: str | None = None) -> None:
        self.record.end_trial(trial, outcome, reason)
        self.callbacks.on_end(trial.name, outcome.name, trial.value, reason)

    def _tidy(self, trial: Trial) -> None:
        self.record.tidy(trial)
        self._discard_networks()

    def _discard_networks(self) -> None:
        """Removes the networks of all trials beyond `storage.keep`, each of them once."""
        if (keep := self.spec.storage.keep) is None:
            return
        # A process that still runs would write its network once more.
        trials = tuple(self.record.result(t) for t in self.trials if t.name not in self._live)
        results = SweepResults(self.folder.name, self.folder, self.spec, None, trials)
        for name in removable_trials(results, keep):
            if name not in self._discarded:
                discard_network(checkpoint_folder(self.folder, name), f"storage.keep: {keep}")
                self._discarded.add(name)

    def finish(self) -> str | None:
        """Records the ends that are left once no process of a trial runs.

        Returns the reason if a limit has ended the sweep before all its trials were trained.
        """
        # All of them: workers of a distributed trial may have written a network once more.
        self._discarded.clear()
        self._discard_networks()
        ended = [trial for trial in self.trials if not trial.is_open]
        for trial in ended:
            self.record.tidy(trial, at_end=True)
        self.close_open()
        if (limit := self._limit) is None or len(ended) >= self.num_trials:
            return None
        return f"{limit}: {len(ended)} of {self.num_trials} trials have ended"

    def close_open(self) -> None:
        """Records an interruption for open trials without an end, such as those at a rung."""
        for trial in self.trials:
            if trial.status is Status.RUNNING:
                self.record.end_trial(trial, Status.INTERRUPTED, None)
