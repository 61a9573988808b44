"""Tune's searcher on an Optuna study: suggests trials and records their ends."""

import math
import os
import warnings
from collections.abc import Mapping
from typing import Any, Protocol

import optuna
from optuna.trial import FrozenTrial, TrialState
from ray.tune.search import Searcher

from mtcon_ray.base.status import Status
from mtcon_ray.spec.resources import ResourcesSpec
from mtcon_ray.sweep.halving import Rung
from mtcon_ray.sweep.optuna_private import reloaded, writable
from mtcon_ray.sweep.scheduler import OBJECTIVE
from mtcon_ray.sweep.study import REASON, REPEAT, TRIAL, Suggester, named_trials

# Maximum number of trials that wait for their processes, or for new nodes of a cluster. With more
# waiting trials, the sampler would suggest trials without the values of running trials.
MAX_WAITING = 8
# Tune's alternative, `max_concurrent_trials`, also limits the running trials.
WAITING_VARIABLE = "TUNE_MAX_PENDING_TRIALS_PG"


class Driver(Protocol):
    """Interface of the sweep's driver to its searcher."""

    @property
    def stopping(self) -> bool:
        """True if the sweep must end: no new trial is suggested."""

    @property
    def exhausted(self) -> bool:
        """True if the sweep's time is used up: running trials continue, no trial is suggested."""

    def halt(self, reason: str) -> None:
        """Ends the sweep, because every further trial would fail for this reason too."""

    def started(self, trial: FrozenTrial) -> None:
        """Called before a trial starts, also if it has been suggested before."""

    def ended(self, trial: FrozenTrial, outcome: Status, reason: str | None) -> None:
        """Called when a trial has ended or waits at a rung."""

    def explain(self, trial: FrozenTrial) -> str:
        """Returns the reason for a trial's failure as a single line."""

    def recorded(self, trial: FrozenTrial) -> Mapping[int, float]:
        """Returns the values of the objective in the trial's event log, by epoch."""

    def value(self, trial: FrozenTrial) -> float | None:
        """Returns the objective of the trial's selected epoch."""


class StudySearcher(Searcher):
    """Searcher for the interrupted trials first, then for new trials.

    In the study, an early-stopped trial becomes PRUNED with its last value, and a trial without a
    finite value FAIL. An interrupted trial stays RUNNING and is suggested again at resume.
    """

    def __init__(
        self,
        suggester: Suggester,
        continued: list[FrozenTrial],
        driver: Driver,
        *,
        max_concurrent: int,
        rung: Rung | None = None,
    ) -> None:
        super().__init__(metric=OBJECTIVE, mode="max")
        self._suggester = suggester
        self._study = suggester.study
        self._continued = list(continued)
        self._driver = driver
        self._max_concurrent = max_concurrent
        self._rung = rung
        self._live: dict[str, FrozenTrial] = {}  # by Tune's id, as they were suggested
        self._until: dict[int, int | None] = {}  # by number: the epoch of the rung

    def suggest(self, trial_id: str) -> Any:
        """Returns the next trial's configuration, None while enough trials run, or FINISHED."""
        if self._driver.stopping or self._driver.exhausted:
            return str(Searcher.FINISHED)
        if len(self._live) >= self._max_concurrent:
            return None
        trial = self._next()
        if trial is None:
            # A running trial may continue from a rung later, and must then be suggested.
            return None if self._rung and self._live else str(Searcher.FINISHED)
        until = self._rung.until(trial) if self._rung else None
        self._live[trial_id], self._until[trial.number] = trial, until
        self._driver.started(trial)
        return {
            "trial": trial.user_attrs[TRIAL],
            "repeat": trial.user_attrs[REPEAT],
            "values": trial.params,
            "until": until,
        }

    def _next(self) -> FrozenTrial | None:
        if not self._continued:
            trial = self._suggester.next()
            if trial or not self._rung:
                return trial
            trials = named_trials(self._study)
            self._continued, over = self._rung.settled(trials, self._until)
            for trial in over:
                self._close(trial, Status.PRUNED, None)
        return self._continued.pop(0) if self._continued else None

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Records a validation accuracy, unless its epoch has a value already."""
        value, epoch = result.get(OBJECTIVE), result.get("epoch")
        if value is not None and epoch is not None:
            report_missing(self._study, self._frozen(trial_id), {epoch: value})

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Records the trial's end in the study."""
        if result:
            if result.get("halt"):
                self._driver.halt(result["halt"])
            self.on_trial_result(trial_id, result)
        # The callbacks of the end get the value of the epochs so far.
        trial = self._with_recorded(self._frozen(trial_id))
        self._close(trial, *self._outcome(trial, result, error))
        del self._live[trial_id], self._until[trial.number]

    def _outcome(
        self, trial: FrozenTrial, result: dict[str, Any] | None, error: bool
    ) -> tuple[Status, str | None]:
        outcome = Status((result or {}).get("outcome", Status.RUNNING))
        if self._driver.stopping and (error or outcome in (Status.RUNNING, Status.WAITING)):
            return Status.INTERRUPTED, None
        if error:
            return Status.FAILED, self._driver.explain(trial)
        if outcome is Status.RUNNING:  # Tune stopped it between two reports
            return Status.PRUNED, None
        return outcome, (result or {}).get("reason")

    def _close(self, trial: FrozenTrial, outcome: Status, reason: str | None) -> None:
        # First the end event, after which the event log takes no report. The study then gets all
        # values, because a closed trial takes none. After a kill in between, a resume closes it.
        self._driver.ended(trial, outcome, reason)
        trial = self._with_recorded(trial)
        tell(self._study, trial, outcome, self._driver.value(trial), reason)

    def _with_recorded(self, trial: FrozenTrial) -> FrozenTrial:
        """Reports the event log's values to the study, and returns the updated trial.

        Workers of a distributed trial train while Tune decides to stop it, and the report of a
        killed worker may not arrive. The event log has these epochs.
        """
        report_missing(self._study, trial, self._driver.recorded(trial))
        return reloaded(self._study, trial)

    def _frozen(self, trial_id: str) -> FrozenTrial:
        return reloaded(self._study, self._live[trial_id])

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        """Pickles as an empty Searcher, because Tune saves its searcher but never loads it.

        The study and the callbacks cannot be pickled.
        """
        return Searcher, ()

    def save(self, checkpoint_path: str) -> None:
        """Saves nothing: the study's journal is the state."""


def let_trials_wait(resources: ResourcesSpec, concurrency: int | None) -> None:
    """Lets several trials wait for their processes, until `connected` restores the environment.

    With a custom searcher, Tune otherwise lets a single trial wait. A trial then starts after the
    process of the previous trial, which takes 5 to 10 seconds, or minutes if a cluster must first
    add a node. `concurrency` is the number of trials that fit. A single trial waits if this number
    is unknown (None), or if trials are elastic, because an elastic trial takes all workers left by
    earlier trials. The user's setting of the variable has priority.
    """
    low, high = resources.worker_range
    most = min(MAX_WAITING, concurrency or 1) if low == high else 1
    os.environ.setdefault(WAITING_VARIABLE, str(most))


def report_missing(study: optuna.Study, trial: FrozenTrial, values: Mapping[int, float]) -> None:
    """Reports to an open trial of the study the values, by epoch, that it lacks."""
    for epoch, value in sorted(values.items()):
        if epoch not in trial.intermediate_values:
            writable(study, trial).report(value, step=epoch)


def tell(
    study: optuna.Study,
    trial: FrozenTrial,
    outcome: Status,
    value: float | None,
    reason: str | None,
) -> None:
    """Closes a trial in the study, unless it was interrupted or waits at a rung."""
    if outcome in (Status.INTERRUPTED, Status.WAITING):
        return
    if reason:
        writable(study, trial).set_user_attr(REASON, reason)
    states = {Status.FINISHED: TrialState.COMPLETE, Status.PRUNED: TrialState.PRUNED}
    finite = value is not None and math.isfinite(value)
    state = states.get(outcome, TrialState.FAIL) if finite else TrialState.FAIL
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        study.tell(trial.number, value if state is TrialState.COMPLETE else None, state=state)
