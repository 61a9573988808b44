"""Tune's searcher on an Optuna study: suggests trials, and records how they end."""

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

# Trials that may wait at a time for their processes, or for nodes of a cluster that grows. If more
# did, the sampler would suggest trials without the values of those that run meanwhile.
MAX_WAITING = 8
# Tune's other way, `max_concurrent_trials`, also limits the trials that run.
WAITING_VARIABLE = "TUNE_MAX_PENDING_TRIALS_PG"


class Driver(Protocol):
    """The sweep's driver, as its searcher needs it."""

    @property
    def stopping(self) -> bool:
        """True if the sweep must end: no new trial is suggested."""

    @property
    def exhausted(self) -> bool:
        """True if the sweep's time is used up: no trial is suggested, those that run go on."""

    def halt(self, reason: str) -> None:
        """Ends the sweep, because every further trial would fail for this reason too."""

    def started(self, trial: FrozenTrial) -> None:
        """Called before a trial starts, also if it has been suggested before."""

    def ended(self, trial: FrozenTrial, outcome: Status, reason: str | None) -> None:
        """Called when a trial has ended or waits at a rung."""

    def explain(self, trial: FrozenTrial) -> str:
        """Returns why a trial's process failed, in one line."""

    def recorded(self, trial: FrozenTrial) -> Mapping[int, float]:
        """Returns the values of the objective in the trial's event log, by epoch."""

    def value(self, trial: FrozenTrial) -> float | None:
        """Returns the objective of the trial's selected epoch."""


class StudySearcher(Searcher):
    """Searcher that suggests the interrupted trials first, then new ones.

    In the study, a trial that was stopped early becomes PRUNED with its last value, and one without
    a finite value FAIL. An interrupted trial stays RUNNING and is suggested again at resume.
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
        """Returns the next trial's configuration, None while enough are running, or FINISHED."""
        if self._driver.stopping or self._driver.exhausted:
            return str(Searcher.FINISHED)
        if len(self._live) >= self._max_concurrent:
            return None
        trial = self._next()
        if trial is None:
            # A trial that trains now may go on from a rung later, and must then be suggested.
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
        """Records a validation accuracy at its epoch, unless that epoch has one already."""
        value, epoch = result.get(OBJECTIVE), result.get("epoch")
        if value is not None and epoch is not None:
            report_missing(self._study, self._frozen(trial_id), {epoch: value})

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Records in the study how the trial ended."""
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
        # The end event first: the event log takes no report after it, and a closed trial of the
        # study takes no value. A resume after a kill in between tells the study.
        self._driver.ended(trial, outcome, reason)
        trial = self._with_recorded(trial)
        tell(self._study, trial, outcome, self._driver.value(trial), reason)

    def _with_recorded(self, trial: FrozenTrial) -> FrozenTrial:
        """Reports to the study what only the event log has, and returns the trial with it.

        Workers of a distributed trial train on while Tune decides to stop it, and the report of a
        killed worker may not arrive. The event log has those epochs.
        """
        report_missing(self._study, trial, self._driver.recorded(trial))
        return reloaded(self._study, trial)

    def _frozen(self, trial_id: str) -> FrozenTrial:
        return reloaded(self._study, self._live[trial_id])

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        """Pickles as an empty Searcher: Tune saves its searcher, which nothing reads back.

        The study and the callbacks cannot be pickled.
        """
        return Searcher, ()

    def save(self, checkpoint_path: str) -> None:
        """Saves nothing: the study's journal is the state."""


def let_trials_wait(resources: ResourcesSpec, concurrency: int | None) -> None:
    """Lets several trials wait for their processes, until `connected` restores the environment.

    With a searcher that is not Tune's own, Tune otherwise lets one trial wait: each starts once the
    process of the one before is there, which takes 5 to 10 seconds, or minutes if a cluster must
    first add a node. `concurrency` is the number of trials that fit, None if it is unknown; then
    one waits. One waits too if trials are elastic, for each takes the workers that earlier ones
    have left. A user's setting of the variable holds.
    """
    low, high = resources.worker_range
    most = min(MAX_WAITING, concurrency or 1) if low == high else 1
    os.environ.setdefault(WAITING_VARIABLE, str(most))


def report_missing(study: optuna.Study, trial: FrozenTrial, values: Mapping[int, float]) -> None:
    """Reports to an open trial of the study those values by epoch that it does not have yet."""
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
