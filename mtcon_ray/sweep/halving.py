"""Synchronous successive halving: decides which waiting trials continue after the rung.

All decisions follow from the trials in the event log, so a resumed sweep decides like the killed
sweep. A trial ends by itself at its rung and is not trained past it. To continue, it is resumed as
after a kill.
"""

import math
import sys
from collections.abc import Mapping, Sequence

from mtcon_ray.base.status import Status
from mtcon_ray.spec.schedulers import Halving, SchedulerSpec
from mtcon_ray.sweep.record import Trial


class Rung:
    """The rung of a sweep of `num_trials` trials. Two probes are `every` epochs apart.

    Without halving no trial reaches it.
    """

    def __init__(self, spec: SchedulerSpec, num_trials: int, every: int) -> None:
        self._spec, self._every = spec, every
        self._survivors = spec.survivors(num_trials) if isinstance(spec, Halving) else 0

    def until(self, trial: Trial) -> int | None:
        """Returns the epoch at which the trial must wait, or None if it trains to its end."""
        rung = self._of(trial)
        return rung if _last(trial) < rung < trial.epochs else None

    def waits(self, trial: Trial) -> bool:
        """Returns True if an open trial stands at the rung, not before or after it."""
        return trial.is_open and _last(trial) == self._of(trial)

    def settled(
        self, trials: Sequence[Trial], live: Mapping[str, int | None]
    ) -> tuple[list[Trial], list[Trial]]:
        """Returns the waiting trials to continue, and the waiting trials to stop.

        Call it after all trials of the sweep have been suggested. `live` maps the names of the
        trials in training to the epochs until which they train.
        """
        waiting, num_beyond = list[Trial](), 0
        for trial in trials:
            continues = trial.name in live and live[trial.name] is None
            # A trial that has finished at a plateau before the rung takes no place.
            if continues or _last(trial) + (trial.status is Status.FINISHED) > self._of(trial):
                num_beyond += 1
            elif trial.is_open and (trial.name in live or not self.waits(trial)):
                return [], []  # it has yet to arrive at the rung
            elif trial.is_open:
                waiting.append(trial)
        # Trials beyond the rung outnumber the survivors if the sweep was resumed with fewer trials.
        free = max(0, self._survivors - num_beyond)
        ranked = sorted(waiting, key=lambda t: (-_value(t), t.number))
        return ranked[:free], ranked[free:]

    def _of(self, trial: Trial) -> int:
        if not isinstance(self._spec, Halving):
            return sys.maxsize
        (rung,) = self._spec.rung_epochs(trial.epochs, self._every)
        return rung


def _last(trial: Trial) -> int:
    return max(trial.values, default=0)


def _value(trial: Trial) -> float:
    value = trial.values[_last(trial)]
    return value if math.isfinite(value) else -math.inf
