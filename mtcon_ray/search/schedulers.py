"""Which trials are stopped early, as plain data; `sweep` turns it into Ray Tune's schedulers."""

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
