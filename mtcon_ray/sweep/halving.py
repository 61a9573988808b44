"""Synchronous successive halving: decides which waiting trials continue after the rung.

All decisions follow from the study alone, so a resumed sweep decides like the killed sweep. A trial
ends by itself at its rung and is not trained past it. To continue, it is resumed as after a kill.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from optuna.trial import FrozenTrial, TrialState

from mtcon_ray.spec.schedulers import Halving


class Rung:
    """The rung of a sweep.

    `epochs` returns a trial's own number of epochs. Two probes are `every` epochs apart.
    """

    def __init__(
        self, spec: Halving.Spec, num_trials: int, epochs: Callable[[FrozenTrial], int], every: int
    ) -> None:
        self._spec = spec
        self._survivors = spec.survivors(num_trials)
        self._epochs = epochs
        self._every = every

    def until(self, trial: FrozenTrial) -> int | None:
        """Returns the epoch at which the trial must wait, or None if it trains to its end."""
        rung = self._of(trial)
        return rung if _last(trial) < rung < self._epochs(trial) else None

    def waits(self, trial: FrozenTrial) -> bool:
        """Returns True if an open trial stands at the rung, not before or after it."""
        return _last(trial) == self._of(trial)

    def settled(
        self, trials: Sequence[FrozenTrial], live: Mapping[int, int | None]
    ) -> tuple[list[FrozenTrial], list[FrozenTrial]]:
        """Returns the waiting trials to continue, and the waiting trials to stop.

        Call it after all trials of the sweep have been suggested. `live` maps the numbers of the
        trials in training to the epochs until which they train.
        """
        under_way = [t for t in trials if t.state is TrialState.RUNNING]
        if any(_last(t) < self._of(t) or _arrives(t, live) for t in under_way):
            return [], []
        waiting = [t for t in under_way if t.number not in live and self.waits(t)]
        # Trials beyond the rung outnumber the survivors if the sweep was resumed with fewer trials.
        free = max(0, self._survivors - sum(self._is_beyond(t, live) for t in trials))
        ranked = sorted(waiting, key=lambda t: (-_value(t), t.number))
        return ranked[:free], ranked[free:]

    def _is_beyond(self, trial: FrozenTrial, live: Mapping[int, int | None]) -> bool:
        if _last(trial) > self._of(trial):
            return True
        return self.waits(trial) and (trial.number in live or trial.state is TrialState.COMPLETE)

    def _of(self, trial: FrozenTrial) -> int:
        (rung,) = self._spec.rung_epochs(self._epochs(trial), self._every)
        return rung


def _arrives(trial: FrozenTrial, live: Mapping[int, int | None]) -> bool:
    """Returns True if the trial has reported its rung's epoch and has yet to end there."""
    until = live.get(trial.number)
    return until is not None and _last(trial) >= until


def _last(trial: FrozenTrial) -> int:
    return max(trial.intermediate_values, default=0)


def _value(trial: FrozenTrial) -> float:
    value = trial.intermediate_values[_last(trial)]
    return value if math.isfinite(value) else -math.inf
