"""A sweep's driver for tests of its searcher, without Ray and without a folder."""

from collections.abc import Mapping

from optuna.trial import FrozenTrial

from mtcon_ray.base.status import Status
from mtcon_ray.spec.evaluate import Select, selected_value
from mtcon_ray.sweep.study import TRIAL


class StillDriver:
    """Driver that keeps what its searcher tells it; `recorded` are each trial's logged values."""

    def __init__(
        self, select: Select = "last", recorded: Mapping[int, float] | None = None
    ) -> None:
        self.stopping = self.exhausted = False
        self.halted: list[str] = []
        self.ends: list[tuple[FrozenTrial, Status, str | None]] = []
        self._select = select
        self._recorded = recorded or {}

    def halt(self, reason: str) -> None:
        self.stopping = True
        self.halted.append(reason)

    def started(self, trial: FrozenTrial) -> None:
        """Ignores the start of a trial."""

    def ended(self, trial: FrozenTrial, outcome: Status, reason: str | None) -> None:
        self.ends.append((trial, outcome, reason))

    def explain(self, trial: FrozenTrial) -> str:
        return f"{trial.user_attrs[TRIAL]} was lost"

    def recorded(self, trial: FrozenTrial) -> Mapping[int, float]:
        return self._recorded

    def value(self, trial: FrozenTrial) -> float | None:
        return selected_value(trial.intermediate_values, self._select)
