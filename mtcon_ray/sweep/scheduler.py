"""Ray Tune's scheduler of a sweep, restored from the trials of earlier drivers."""

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
# Completed percent of the trial's own epochs. Rungs at shares of this budget stay fair if the
# number of epochs is searched.
BUDGET = "budget"


def tune_scheduler(
    spec: SchedulerSpec, past: Iterable[History], continued: Mapping[str, History]
) -> TrialScheduler:
    """Returns Tune's scheduler, restored from the histories of earlier drivers of the sweep.

    `past` holds the histories of ended trials, `continued` the histories of resumed trials by name.
    ASHA stops a trial at a rung, and a `StoppingRule` after a probe. Otherwise Tune stops no trial:
    the trials of halving end by themselves at a rung (see `halving.Rung`).
    """
    if isinstance(spec, ASHA.Spec):
        return ResumableASHA(spec, past, continued)
    kind: Any = SCHEDULERS[spec.name]
    if issubclass(kind, StoppingRule):
        return RuleScheduler(kind(spec), past, continued)
    return FIFOScheduler()


class RuleScheduler(FIFOScheduler):
    """Adapter of a `StoppingRule` to Tune, with the histories of earlier drivers."""

    def __init__(
        self, rule: StoppingRule, past: Iterable[History], continued: Mapping[str, History]
    ) -> None:
        super().__init__()
        self._rule = rule
        self._continued = continued
        self._histories = {f"past-{number}": list(each) for number, each in enumerate(past)}

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Adds a trial, with its earlier values if it is resumed."""
        self._histories[trial.trial_id] = list(self._continued.get(trial.config["trial"], []))

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Asks the rule after each epoch with a probe."""
        if OBJECTIVE in result and BUDGET in result:
            history = self._histories[trial.trial_id]
            if history and result[BUDGET] <= history[-1][0]:
                # After a kill or a failure a trial reports some epochs again.
                return TrialScheduler.CONTINUE
            history.append((result[BUDGET], result[OBJECTIVE]))
            others = [each for name, each in self._histories.items() if name != trial.trial_id]
            if self._rule.stops(history, others):
                return TrialScheduler.STOP
        return TrialScheduler.CONTINUE


class ResumableASHA(AsyncHyperBandScheduler):
    """Ray's ASHA, with the values of earlier drivers of this sweep on its rungs."""

    def __init__(
        self, spec: ASHA.Spec, past: Iterable[History], continued: Mapping[str, History]
    ) -> None:
        super().__init__(
            time_attr=BUDGET,
            metric=OBJECTIVE,
            mode="max",
            max_t=100,
            # Slightly below the first rung, because budgets are rounded. Ray's annotation asks for
            # an int, but its code accepts any number above 0.
            grace_period=100 * spec.grace - 1e-6,  # type: ignore[arg-type]
            reduction_factor=spec.reduction,
            stop_last_trials=False,
        )
        self._continued = continued
        no_controller: Any = None
        for number, history in enumerate(past):
            # ASHA reads only the id of a trial.
            ended: Any = SimpleNamespace(trial_id=f"past-{number}")
            self._replay(no_controller, ended, history)
            self.on_trial_remove(no_controller, ended)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Adds a trial, with its earlier values on the rungs if it is resumed."""
        history = self._continued.get(trial.config["trial"], [])
        self._replay(tune_controller, trial, history)

    def _replay(self, tune_controller: Any, trial: Any, history: History) -> None:
        super().on_trial_add(tune_controller, trial)
        for budget, objective in history:
            # ASHA's answer is ignored, because the earlier driver has acted on its own answer.
            super().on_trial_result(tune_controller, trial, {BUDGET: budget, OBJECTIVE: objective})
