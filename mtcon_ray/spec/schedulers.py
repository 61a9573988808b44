"""The schedulers of `search.scheduler`: fields, rungs, and the base class of plugins' rules.

The driver decides: ASHA and rules in `mtcon_ray/sweep/stopping.py`, halving in
`mtcon_ray/sweep/halving.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import ceil
from typing import ClassVar

from pydantic import Field

from mtcon_ray.base.registry import Inside, NamedSpec, Table


class SchedulerSpec(NamedSpec):
    """Base of every scheduler's section."""

    @property
    def rungs(self) -> tuple[float, ...]:
        """Returns the fractions of a trial's own epochs at which it may be stopped, ascending."""
        return ()

    def rung_epochs(self, epochs: int, every: int) -> tuple[int, ...]:
        """Returns the rungs of a trial in epochs, each rounded up to the next probe.

        `epochs` is the length of the trial. Probes are every `every` epochs and at the end.

        >>> ASHA(grace=0.25, reduction=2).rung_epochs(10, every=1)
        (3, 5)
        """
        # share * epochs may exceed the intended whole number by a rounding error.
        probes = (every * ceil((share * epochs - 1e-6) / every) for share in self.rungs)
        return tuple(min(epochs, max(every, epoch)) for epoch in probes)

    def epochs_known(self, num_trials: int, epochs: int, every: int) -> int | None:
        """Returns the total epochs of all trials, None if they depend on the trials' values."""
        return None


# A trial's probes so far: the percentage of its own epochs completed, ascending, and the
# objective.
History = list[tuple[float, float]]


class StoppingRule(ABC):
    """Base of plugins' schedulers. Their decisions follow from the trials' values alone.

    After each probe of a trial it decides whether the trial stops. It keeps no state. Therefore
    a resumed sweep decides as an uninterrupted sweep. The section is the nested class `Spec`.
    """

    def __init__(self, spec: SchedulerSpec) -> None:
        self.spec = spec

    @abstractmethod
    def stops(self, trial: History, others: Sequence[History]) -> bool:
        """Returns True to stop the trial now. `others` are all other trials, ended or not."""


# The classes are those of plugins.
SCHEDULERS: Table[StoppingRule] = Table("scheduler")


@SCHEDULERS.declare("none")
class NoScheduler(SchedulerSpec):
    """No early stopping."""

    def epochs_known(self, num_trials: int, epochs: int, every: int) -> int | None:
        return num_trials * epochs


@SCHEDULERS.declare("asha")
class ASHA(SchedulerSpec):
    """ASHA: at each rung, a trial continues if it is among the best 1/reduction so far.

    Asynchronous successive halving, stopping variant (Li et al. 2020, arXiv:1810.05934). Rungs are
    shares of the trial's own epochs, so trials compare fairly if the number of epochs is searched.
    """

    grace: Inside = Field(0.25, description="first rung, as a share of the trial's own epochs")
    reduction: float = Field(
        2.0, gt=1, le=10, description="of a rung, the best 1/reduction continue"
    )

    @property
    def rungs(self) -> tuple[float, ...]:
        shares = [self.grace]
        while shares[-1] * self.reduction < 1:
            shares.append(shares[-1] * self.reduction)
        return tuple(shares)


@SCHEDULERS.declare("halving")
class Halving(SchedulerSpec):
    """Halving: when all trials have trained a third of their epochs, the best third continue.

    Synchronous successive halving (Jamieson and Talwalkar 2016, arXiv:1502.07943): neither the
    order of trials nor the number of concurrent trials changes which of them continue. In 12 of 12
    recorded grids the winner was within 0.5 points of the best temperature (benchmarks/README.md).
    """

    rungs: ClassVar[tuple[float, ...]] = (1 / 3,)

    def survivors(self, num_trials: int) -> int:
        """Returns the number of trials trained to their end, at least 1."""
        return max(1, num_trials // 3)

    def epochs_known(self, num_trials: int, epochs: int, every: int) -> int | None:
        (rung,) = self.rung_epochs(epochs, every)
        return num_trials * rung + self.survivors(num_trials) * (epochs - rung)
