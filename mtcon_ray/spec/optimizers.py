"""Optimizers of `train.optimizer`, by their fields, and schedules of `train.lr_schedule`."""

import math
from typing import Any, ClassVar

from pydantic import Field

from mtcon_ray.base.registry import BelowOne, Count, Inside, NamedSpec, Positive, Share, Table

OPTIMIZERS: Table[Any] = Table("optimizer")
SCHEDULES: Table[Any] = Table("schedule")


class OptimizerSpec(NamedSpec):
    """Base of the sections of all optimizers."""


@OPTIMIZERS.declare("sgd", "mtcon_ray.models.optimizers:SGD")
class SGDSpec(OptimizerSpec):
    """Stochastic gradient descent with `train.momentum`."""

    nesterov: bool = Field(False, description="Nesterov's momentum")


@OPTIMIZERS.declare("lars", "mtcon_ray.training.optimizer:Lars")
class LarsSpec(OptimizerSpec):
    """SGD for very large batches: a step is relative to the length of a layer's weights."""


@OPTIMIZERS.declare("adam", "mtcon_ray.models.optimizers:Adam")
class AdamSpec(OptimizerSpec):
    """Adam, with `train.momentum` as its first beta."""

    beta2: BelowOne = Field(0.999, description="second beta: decay of the squared gradients")
    eps: Positive = Field(1e-8, description="added to the root of the squared gradients")


@OPTIMIZERS.declare("adamw", "mtcon_ray.models.optimizers:AdamW")
class AdamWSpec(AdamSpec):
    """Adam with a weight decay that does not enter the moments."""


class ScheduleSpec(NamedSpec):
    """Base of all schedules. If `warms_up` is False, `train.warmup_epochs: null` means 0."""

    warms_up: ClassVar[bool] = True

    def share(self, step: float, last: float, steps_per_epoch: int, final: float) -> float:
        """Returns the rate of a step as a share of the peak rate.

        `step` is 0 at the end of warm-up, which may be within a step, and `last` in the last step.
        `final` is `train.lr_final`.
        """
        raise NotImplementedError


@SCHEDULES.declare("cosine")
class CosineSpec(ScheduleSpec):
    """Half a cosine, as SupContrast's code per epoch (Khosla et al. 2020, arXiv:2004.11362)."""

    def share(self, step: float, last: float, steps_per_epoch: int, final: float) -> float:
        return _cosine(1, final, step / last if last > 0 else 0)


@SCHEDULES.declare("exponential")
class ExponentialSpec(ScheduleSpec):
    """The same factor in every step. With `train.lr_final: 1` the rate is constant."""

    def share(self, step: float, last: float, steps_per_epoch: int, final: float) -> float:
        return math.pow(final, step / last if last > 0 else 0)


@SCHEDULES.declare("step")
class StepSpec(ScheduleSpec):
    """A factor after every `epochs` epochs, torch's StepLR. Does not use `train.lr_final`."""

    epochs: Count = Field(30, description="epochs from warm-up or a fall to the next fall")
    gamma: Share = Field(0.1, description="factor on the rate at a fall")

    def share(self, step: float, last: float, steps_per_epoch: int, final: float) -> float:
        return math.pow(self.gamma, step // (self.epochs * steps_per_epoch))


@SCHEDULES.declare("one_cycle")
class OneCycleSpec(ScheduleSpec):
    """A rise and a fall, each half a cosine, torch's OneCycleLR (arXiv:1708.07120).

    The momentum is constant, as with torch's `cycle_momentum=False`.
    """

    warms_up: ClassVar[bool] = False

    pct_start: Inside = Field(0.3, description="share of the steps in which the rate rises")
    div_factor: float = Field(25.0, ge=1, description="peak rate over the rate of the first step")

    def share(self, step: float, last: float, steps_per_epoch: int, final: float) -> float:
        peak = self.pct_start * (last + 1) - 1
        if step < peak:
            return _cosine(1 / self.div_factor, 1, step / peak)
        return _cosine(1, final, (step - peak) / (last - peak))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
