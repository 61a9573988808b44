"""Synchronous successive halving: the trials that wait at a rung, go on or are stopped.

All decisions follow from the study alone, so that a resumed sweep decides as the killed one would
have. A trial ends by itself at its rung, so that nothing is trained past it. A trial that goes on
is resumed as after a kill.
"""

import math
from collections.abc import Callable, Mapping, Sequence

from optuna.trial import FrozenTrial, TrialState

from mtcon_ray.search.schedulers import Halving


class Rungs:
    """The rungs of one sweep.

    `epochs` returns a trial's own number of epochs; `every` is the number between two probes.
    """

    def __init__(
        self, spec: Halving.Spec, num_trials: int, epochs: Callable[[FrozenTrial], int], every: int
    ) -> None:
        self._spec = spec
        self._survivors = spec.survivors(num_trials)
        self._epochs = epochs
        self._every = every

    def until(self, trial: FrozenTrial) -> int | None:
        """Returns the epoch at which the trial shall wait next, None if it trains to its end."""
        ahead = [e for e in self._of(trial) if e > _last(trial)]
        return ahead[0] if ahead and ahead[0] < self._epochs(trial) else None

    def waits(self, trial: FrozenTrial) -> bool:
        """Returns True if an open trial stands at a rung, not before or between rungs."""
        return _last(trial) in self._of(trial)

    def settled(
        self, trials: Sequence[FrozenTrial], live: Mapping[int, int | None]
    ) -> tuple[list[FrozenTrial], list[FrozenTrial]]:
        """Returns the waiting trials that go on, and those that are stopped.

        To be called once all trials of the sweep have been suggested. `live` holds the numbers of
        the trials in training, each with the epoch until which it trains.
        """
        going: list[FrozenTrial] = []
        over: list[FrozenTrial] = []
        for rung, most in enumerate(self._survivors[1:]):
            under_way = [t for t in trials if t.state is TrialState.RUNNING and t not in over]
            if any(_last(t) < self._of(t)[rung] or _arrives(t, live) for t in under_way):
                break
            waiting = [
                t for t in under_way if t.number not in live and _last(t) == self._of(t)[rung]
            ]
            # More than `most` are beyond the rung only if trials were added to the sweep since.
            free = max(0, most - self._num_beyond(trials, live, rung))
            ranked = sorted(waiting, key=lambda t: (-_value(t), t.number))
            going = [t for t in going if t not in waiting] + ranked[:free]
            over += ranked[free:]
        return [t for t in going if t not in over], over

    def _num_beyond(
        self, trials: Sequence[FrozenTrial], live: Mapping[int, int | None], rung: int
    ) -> int:
        return sum(
            _last(t) > self._of(t)[rung]
            or (
                _last(t) == self._of(t)[rung]
                and (t.number in live or t.state is TrialState.COMPLETE)
            )
            for t in trials
        )

    def _of(self, trial: FrozenTrial) -> tuple[int, ...]:
        return self._spec.rung_epochs(self._epochs(trial), self._every)


def _arrives(trial: FrozenTrial, live: Mapping[int, int | None]) -> bool:
    """Returns True if the trial has reported its rung's epoch and has yet to end there."""
    until = live.get(trial.number)
    return until is not None and _last(trial) >= until


def _last(trial: FrozenTrial) -> int:
    return max(trial.intermediate_values, default=0)


def _value(trial: FrozenTrial) -> float:
    value = trial.intermediate_values[_last(trial)]
    return value if math.isfinite(value) else -math.inf
