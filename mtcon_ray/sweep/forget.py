"""What Tune keeps of each trial to its end, dropped where the trial has ended."""

from typing import Any

from ray.tune import Callback
from ray.tune.experiment import Trial


class Forget(Callback):
    """Of a trial that has ended, takes Tune's statistics of each metric and its last report.

    They are for Tune's own tables, which a sweep does not read: study and spools hold it all. With
    them the driver grows by some 50 KiB a trial.
    """

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial is over, early or not; searcher and scheduler have been told."""
        _forget(trial)

    def on_trial_error(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """A trial has failed for good."""
        _forget(trial)


def _forget(trial: Trial) -> None:
    trial.metric_analysis.clear()
    trial.metric_n_steps.clear()
    # Of a trial without any report Tune would ask the process that trained it.
    trial.run_metadata.last_result = {"done": True}
