"""Ray Tune's scheduler of a sweep; ASHA is restored from the trials of earlier drivers."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from mtcon_ray.spec.schedulers import (
    ASHA,
    SCHEDULERS,
    History,
    SchedulerSpec,
    StoppingRule,
)

OBJECTIVE = "objective"
# Percent of the trial's own epochs that are done. Rungs at shares of this budget stay fair when
# the number of epochs is searched.
BUDGET = "budget"


def tune_scheduler(
    spec: SchedulerSpec, past: Iterable[History], continued: Mapping[str, History]
) -> TrialScheduler:
    """Returns Tune's scheduler, given the values that earlier drivers of the sweep saw.

    `past` holds the histories of ended trials, `continued` those of resumed trials, by name. ASHA
    stops a trial when it reports at a rung. Otherwise Tune stops no trial: those of halving end by
    themselves at a rung (see `halving.Rung`).
    """
    if isinstance(spec, ASHA.Spec):
        return ResumableASHA(spec, past, continued)
    kind: Any = SCHEDULERS[spec.name]
    if issubclass(kind, StoppingRule):
        return RuleScheduler(kind(spec), past, continued)
    return FIFOScheduler()


class RuleScheduler(FIFOScheduler):
    """Tune's side of a `StoppingRule`; it is given the values that earlier drivers saw."""

    def __init__(
        self, rule: StoppingRule, past: Iterable[History], continued: Mapping[str, History]
    ) -> None:
        super().__init__()
        self._rule = rule
        self._continued = continued
        self._histories = {f"past-{number}": list(each) for number, each in enumerate(past)}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Adds a trial; a resumed one with its earlier values."""
        self._histories[trial.trial_id] = list(self._continued.get(trial.config["trial"], []))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Asks the rule after each epoch with a probe."""
        if OBJECTIVE in result and BUDGET in result:
            history = self._histories[trial.trial_id]
            if history and result[BUDGET] <= history[-1][0]:
                # A trial that goes on after a kill or a failure reports epochs again.
                return TrialScheduler.CONTINUE
            history.append((result[BUDGET], result[OBJECTIVE]))
            others = [each for name, each in self._histories.items() if name != trial.trial_id]
            if self._rule.stops(history, others):
                return TrialScheduler.STOP
        return TrialScheduler.CONTINUE


class ResumableASHA(AsyncHyperBandScheduler):
    """Ray's ASHA with the values that earlier drivers of this sweep saw already on its rungs."""

    def __init__(
        self, spec: ASHA.Spec, past: Iterable[History], continued: Mapping[str, History]
    ) -> None:
        super().__init__(
            time_attr=BUDGET,
            metric=OBJECTIVE,
            mode="max",
            max_t=100,
            # Below the first rung by a margin for budgets that are rounded. Ray's annotation asks
            # for an int, its code for any number above 0.
            grace_period=100 * spec.grace - 1e-6,  # type: ignore[arg-type]
            reduction_factor=spec.reduction,
            stop_last_trials=False,
        )
        self._continued = continued
        no_controller: Any = None
        for number, history in enumerate(past):
            # ASHA reads nothing of a trial but its id.
            ended: Any = SimpleNamespace(trial_id=f"past-{number}")
            self._replay(no_controller, ended, history)
            self.on_trial_remove(no_controller, ended)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Adds a trial; a resumed one with its earlier values on the rungs."""
        history = self._continued.get(trial.config["trial"], [])
        self._replay(tune_controller, trial, history)

    def _replay(self, tune_controller: Any, trial: Any, history: History) -> None:
        super().on_trial_add(tune_controller, trial)
        for budget, objective in history:
            # ASHA's answer is dropped: the earlier driver has acted on its own.
            super().on_trial_result(tune_controller, trial, {BUDGET: budget, OBJECTIVE: objective})
