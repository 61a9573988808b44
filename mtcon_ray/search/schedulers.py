"""Which trials are stopped early, as plain data; `sweep` turns it into Ray Tune's schedulers."""

from itertools import pairwise
from math import ceil, floor
from typing import ClassVar, Literal

from pydantic import Field

from mtcon_ray.registry import Spec, Table


class SchedulerSpec(Spec):
    """What every scheduler's section has."""

    name: str

    @property
    def rungs(self) -> tuple[float, ...]:
        """Shares of a trial's own epochs at which it may be stopped, ascending."""
        return ()

    def rung_epochs(self, epochs: int, every: int) -> tuple[int, ...]:
        """The rungs of a trial of that many epochs: the first probe, one each `every`, at each.

        >>> ASHA.Spec(grace=0.25, reduction=2).rung_epochs(10, every=1)
        (3, 5)
        """
        # A float's share of the epochs may lie a hair above the whole number that is meant.
        probes = (every * ceil((share * epochs - 1e-6) / every) for share in self.rungs)
        return tuple(min(epochs, max(every, epoch)) for epoch in probes)

    def epochs_known(self, num_trials: int, epochs: int, every: int) -> int | None:
        """Epochs that all trials train together; None where that depends on their values."""
        return None


class Scheduler:
    """A named scheduler with a nested `Spec`; registered in SCHEDULERS."""

    Spec: ClassVar[type[SchedulerSpec]]


SCHEDULERS: Table[Scheduler] = Table("scheduler")


@SCHEDULERS.register("none")
class NoScheduler(Scheduler):
    """Every trial trains to its end."""

    class Spec(SchedulerSpec):
        """No early stopping."""

        name: Literal["none"] = "none"

        def epochs_known(self, num_trials: int, epochs: int, every: int) -> int | None:
            return num_trials * epochs


@SCHEDULERS.register("asha")
class ASHA(Scheduler):
    """Asynchronous successive halving (Li 2020, arXiv:1810.05934), stopping variant.

    Rungs are shares of the trial's own epochs, so it stays fair when epochs are searched.
    """

    class Spec(SchedulerSpec):
        """At each rung the best 1/reduction of the trials seen there go on."""

        name: Literal["asha"] = "asha"
        grace: float = Field(
            0.25, gt=0, lt=1, description="first rung, as a share of the trial's own epochs"
        )
        reduction: float = Field(
            2.0, gt=1, le=10, description="next rung is this many times later; 1/this go on"
        )

        @property
        def rungs(self) -> tuple[float, ...]:
            shares = [self.grace]
            while shares[-1] * self.reduction < 1:
                shares.append(shares[-1] * self.reduction)
            return tuple(shares)


@SCHEDULERS.register("halving")
class Halving(Scheduler):
    """Synchronous successive halving (Jamieson and Talwalkar 2016, arXiv:1502.07943).

    Trials wait at a rung for all the others; none is favoured for having come first, and who
    goes on does not depend on how many train at a time.
    """

    class Spec(SchedulerSpec):
        """At each rung trials wait for all others; the best 1/reduction, rounded down, go on."""

        name: Literal["halving"] = "halving"
        reduction: float = Field(
            3.0, gt=1, le=100, description="1/this go on; next rung is this many times later"
        )
        num_rungs: int = Field(
            2, ge=1, le=10, description="the first is at 1/reduction^num_rungs of the epochs"
        )

        @property
        def rungs(self) -> tuple[float, ...]:
            return tuple(self.reduction**-k for k in range(self.num_rungs, 0, -1))

        def survivors(self, num_trials: int) -> tuple[int, ...]:
            """How many trials train up to each rung, and last to their end; one at least.

            >>> Halving.Spec(reduction=3, num_rungs=2).survivors(12)
            (12, 4, 1)
            """
            shares = (self.reduction**-k for k in range(self.num_rungs + 1))
            return tuple(max(1, floor(num_trials * share + 1e-6)) for share in shares)

        def epochs_known(self, num_trials: int, epochs: int, every: int) -> int | None:
            ends = (0, *self.rung_epochs(epochs, every), epochs)
            legs = (after - before for before, after in pairwise(ends))
            return sum(n * leg for n, leg in zip(self.survivors(num_trials), legs, strict=True))
