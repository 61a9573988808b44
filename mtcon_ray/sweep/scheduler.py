"""Ray Tune's schedulers from the spec's, told about trials of earlier drivers of the sweep."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from ray.tune.experiment import Trial
from ray.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler, TrialScheduler

from mtcon_ray.search.schedulers import ASHA, SchedulerSpec

OBJECTIVE = "objective"
# Percent of the trial's own epochs that are done: what makes rungs fair when epochs are searched.
BUDGET = "budget"

History = list[tuple[float, float]]  # (budget, objective), ascending


class OpenTrials(FIFOScheduler):
    """Chooses as Tune does, but among the trials that have not ended.

    Tune's own looks at every trial there has been, in each turn of its loop.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._open: list[Trial] = []  # in the order in which they wait

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial begins to wait; one that is tried again goes behind the others."""
        super().on_trial_add(tune_controller, trial)
        self._drop(trial)
        self._open.append(trial)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A trial is over before it ran, or while it paused."""
        super().on_trial_remove(tune_controller, trial)
        self._drop(trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The first that waits, else the first that pauses."""
        live = tune_controller.get_live_trials()
        self._open = [t for t in self._open if t in live]
        for status in (Trial.PENDING, Trial.PAUSED):
            for trial in self._open:
                if trial.status == status:
                    return trial
        return None

    def _drop(self, trial: Trial) -> None:
        self._open = [t for t in self._open if t is not trial]


class ResumableASHA(OpenTrials, AsyncHyperBandScheduler):
    """Ray's ASHA whose rungs already hold what earlier drivers of this sweep saw."""

    def __init__(
        self, spec: ASHA.Spec, past: Iterable[History], continued: Mapping[str, History]
    ) -> None:
        super().__init__(
            time_attr=BUDGET,
            metric=OBJECTIVE,
            mode="max",
            max_t=100,
            grace_period=100 * spec.grace - 1e-6,  # the margin is for budgets that are rounded
            reduction_factor=spec.reduction,
            stop_last_trials=False,
        )
        self._continued = continued
        nobody: Any = None
        for number, history in enumerate(past):
            # Of a trial the rungs know its id alone.
            ended: Any = SimpleNamespace(trial_id=f"past-{number}")
            self._replay(nobody, ended, history)
            self.on_trial_remove(nobody, ended)

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """Also put a continued trial's earlier values on its rungs."""
        history = self._continued.get(trial.config["trial"], [])
        self._replay(tune_controller, trial, history)

    def _replay(self, tune_controller: Any, trial: Any, history: History) -> None:
        super().on_trial_add(tune_controller, trial)
        for budget, objective in history:
            # The decision was made by the earlier driver; only the rung's record counts.
            super().on_trial_result(tune_controller, trial, {BUDGET: budget, OBJECTIVE: objective})


def make_scheduler(
    spec: SchedulerSpec, past: Iterable[History], continued: Mapping[str, History]
) -> TrialScheduler:
    """The scheduler of a sweep; `continued` holds the histories of trials that go on, by name."""
    if isinstance(spec, ASHA.Spec):
        return ResumableASHA(spec, past, continued)
    return OpenTrials()
