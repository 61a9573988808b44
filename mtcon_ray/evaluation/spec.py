"""The `evaluate` section."""

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from mtcon_ray.registry import Spec

Select = Literal["last", "best"]
Rate = Annotated[float, Field(gt=0)]
Penalty = Annotated[float, Field(gt=0, le=1e6)]


class ShortProbeSpec(Spec):
    """The cheap probe behind the objective, val/accuracy or val/score, during training.

    Of classes and sets it is the mean of the second half of its steps; numbers have a ridge
    regression.
    """

    epochs: int = Field(8, ge=1, description="passes over the probe's training items")
    batch_size: int = Field(64, ge=1, description="items per step")
    lr: float = Field(0.1, gt=0, description="of SGD with momentum")
    max_items: int = Field(
        1280, ge=2, description="at most this many training and as many validation items"
    )


class ProbeSpec(Spec):
    """The linear probe of the reported accuracies; numbers have a ridge regression."""

    epochs: int = Field(20, ge=1, description="passes over the training split")
    batch_size: int = Field(64, ge=1, description="items per step")
    lr: Rate | Annotated[tuple[Rate, ...], Field(min_length=1, max_length=20)] = Field(
        0.1,
        description="of SGD with momentum; several are tried at once, and for each label the best "
        "on val counts",
    )
    momentum: float = Field(0.9, ge=0, lt=1, description="of SGD")
    weight_decay: float = Field(0.0, ge=0, description="of SGD")

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried."""
        return self.lr if isinstance(self.lr, tuple) else (self.lr,)

    def num_steps(self, num_items: int) -> int:
        """Steps of SGD on so many items."""
        return self.epochs * -(-num_items // self.batch_size)


class LabelSetsSpec(Spec):
    """Fields that only the probe of a label set has."""

    loss: Literal["bce", "asymmetric"] = Field(
        "bce", description="binary cross-entropy; asymmetric: gamma 4 and 0, clip 0.05"
    )
    ema: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="also average the weights so (MultiSupCon: 0.9997); the better on val counts",
    )


class NumbersSpec(Spec):
    """The ridge regression that probes a number."""

    penalties: tuple[Penalty, ...] = Field(
        (1e-5, 1e-4, 1e-3, 1e-2, 1e-1),
        min_length=1,
        max_length=20,
        description="shares of the features' mean variance, chosen on val; during training the "
        "middle one",
    )


class EvaluateSpec(Spec):
    """When and how the frozen encoder is probed."""

    every: int = Field(1, ge=1, description="epochs between validation probes; the last always")
    select: Select = Field(
        "last",
        description="the epoch whose network is selected: a trial's value, test accuracies, "
        "kept model.pt and export are of the last one, or of the one with the best value",
    )
    short_probe: ShortProbeSpec = ShortProbeSpec()
    probe: ProbeSpec = ProbeSpec()
    label_sets: LabelSetsSpec = LabelSetsSpec()
    numbers: NumbersSpec = NumbersSpec()
    bootstrap: int = Field(1000, ge=10, le=1_000_000, description="resamples behind a deviation")
    batch_size: int = Field(256, ge=1, description="images per forward pass of the encoder")


def selected_epoch(values: Mapping[int, float], select: Select) -> int | None:
    """Returns the epoch whose network stands for a training, of validation values by epoch.

    The last one, or with `best` the first of the highest finite ones; None without a value.
    """
    finite = [epoch for epoch, value in sorted(values.items()) if math.isfinite(value)]
    if select == "last" or not finite:
        return max(values, default=None)
    return max(finite, key=lambda epoch: values[epoch])


def selected_value(values: Mapping[int, float], select: Select) -> float | None:
    """Returns the value of the selected epoch, None without a value."""
    epoch = selected_epoch(values, select)
    return None if epoch is None else values[epoch]
