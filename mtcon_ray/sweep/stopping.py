"""Early stopping: decides after each probe of a trial whether the trial stops.

All decisions follow from the probes in the order of the event log. A resumed driver feeds the
probes of the log again and then decides as an uninterrupted driver. Trials of halving end by
themselves at a rung, see `halving`.
"""

from typing import Any

import numpy as np

from mtcon_ray.errors import SpecError
from mtcon_ray.spec import schedulers

# The trained share of a trial's epochs is rounded, and must not miss a rung by a rounding error.
ROUNDING = 1e-8


def make_stopping(spec: schedulers.SchedulerSpec) -> "Rungs | Rule | None":
    """Returns the early stopping of a spec's section `search.scheduler`, None if it stops none.

    Raises SpecError for a plugin's scheduler that would never stop a trial.
    """
    if isinstance(spec, schedulers.ASHA):
        return Rungs(spec)
    if isinstance(spec, schedulers.NoScheduler | schedulers.Halving):
        return None
    rule: Any = schedulers.SCHEDULERS[spec.name]
    if not issubclass(rule, schedulers.StoppingRule):
        raise SpecError(
            f"search.scheduler must be none, asha, halving, or a StoppingRule, got {spec.name!r}"
        )
    return Rule(rule(spec))


class Rungs:
    """ASHA (Li et al. 2020, arXiv:1810.05934), stopping variant.

    A trial counts once at each rung. It continues if its value is at least the quantile of the
    values that were at the rung before.
    """

    def __init__(self, spec: schedulers.ASHA) -> None:
        self._quantile = 100 * (1 - 1 / spec.reduction)
        self._rungs: list[tuple[float, dict[str, float]]] = [(r, {}) for r in spec.rungs[::-1]]

    def stops(self, name: str, share: float, value: float) -> bool:
        """Takes over a probe, and returns True if the value is below the quantile of its rung.

        `share` is the trained share of the trial's own epochs, up to 1, `value` the objective.
        """
        values = next((values for rung, values in self._rungs if share >= rung - ROUNDING), None)
        if values is None or name in values:
            return False
        # A NaN stops no trial and counts for no other trial.
        before = [each for each in values.values() if each == each]
        values[name] = value
        return bool(before) and value < float(np.percentile(before, self._quantile))


class Rule:
    """Early stopping by a plugin's rule, with the probes of all trials."""

    def __init__(self, rule: schedulers.StoppingRule) -> None:
        self._rule = rule
        self._histories: dict[str, schedulers.History] = {}

    def stops(self, name: str, share: float, value: float) -> bool:
        """Takes over a probe as `Rungs.stops` does, and returns the rule's decision."""
        history = self._histories.setdefault(name, [])
        history.append((round(100 * share, 6), value))
        others = [each for other, each in self._histories.items() if other != name]
        return self._rule.stops(history, others)
