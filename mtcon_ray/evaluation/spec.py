"""The `evaluate` section."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from mtcon_ray.registry import Choice, Spec, Table

# Raised with every change of how accuracies are measured; those of different numbers do not mix.
EVALUATION = 2
# What may be left of the gradient at zero weights when a probe counts as converged.
CONVERGED = 1e-4

Select = Literal["last", "best"]
Rate = Annotated[float, Field(gt=0)]
Penalty = Annotated[float, Field(gt=0, le=1e6)]


class ShortProbeSpec(Spec):
    """The cheap probe behind the objective, val/accuracy or val/score, during training.

    Of classes and sets it is the logistic regression of `probe` with one penalty, on fewer items;
    numbers have a ridge regression.
    """

    penalty: Penalty = Field(1e-2, description="half of it times the squared norm of the weights")
    max_items: int = Field(
        1280, ge=2, description="at most this many training and as many validation items"
    )


class ConvergedProbeSpec(Spec):
    """Logistic regression on standardised features, minimised by L-BFGS until it has converged.

    Nothing of it is random: neither a seed, nor the order of the items, nor the features' scale
    moves an accuracy.
    """

    solver: Literal["lbfgs"]
    penalties: tuple[Penalty, ...] = Field(
        (1e-1, 1e-2, 1e-3, 1e-4, 1e-5),
        min_length=1,
        max_length=20,
        description="half of one times the squared norm of the weights; for each label the best on "
        "val counts",
    )


class SGDProbeSpec(Spec):
    """Stochastic gradient descent at a constant rate, on features as they are, as CCN's authors.

    Where it ends depends on the order of the minibatches and on the features' scale.
    """

    solver: Literal["sgd"]
    epochs: int = Field(
        20, ge=1, description="passes over the training split; of the best one on val"
    )
    batch_size: int = Field(64, ge=1, description="items per step")
    lr: Rate | Annotated[tuple[Rate, ...], Field(min_length=1, max_length=20)] = Field(
        0.1, description="several are tried at once, and for each label the best on val counts"
    )
    momentum: float = Field(0.0, ge=0, lt=1, description="of the steps")
    weight_decay: float = Field(0.0, ge=0, description="of the weights")

    @property
    def rates(self) -> tuple[float, ...]:
        """The learning rates that are tried."""
        return self.lr if isinstance(self.lr, tuple) else (self.lr,)


ProbeSpec = ConvergedProbeSpec | SGDProbeSpec


class Solver:
    """A way to train the linear probe of the reported accuracies."""

    Spec: ClassVar[type[Spec]]


SOLVERS: Table[Solver] = Table("solver")


@SOLVERS.register("lbfgs")
class Converged(Solver):
    """Until it has converged."""

    Spec = ConvergedProbeSpec


@SOLVERS.register("sgd")
class SGD(Solver):
    """As the papers describe it."""

    Spec = SGDProbeSpec


class LabelSetsSpec(Spec):
    """Fields that only the probe of a label set has, with `probe.solver: sgd`."""

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
    probe: Annotated[ProbeSpec, Choice(SOLVERS, "solver", "lbfgs")] = ConvergedProbeSpec(
        solver="lbfgs"
    )
    label_sets: LabelSetsSpec = LabelSetsSpec()
    numbers: NumbersSpec = NumbersSpec()
    bootstrap: int = Field(1000, ge=10, le=1_000_000, description="resamples behind a deviation")
    neighbours: int = Field(
        20, ge=1, description="nearest training items that vote in the accuracy without a probe"
    )
    batch_size: int = Field(256, ge=1, description="images per forward pass of the encoder")

    @model_validator(mode="after")
    def _sets_fit_the_solver(self) -> Self:
        if self.probe.solver == "lbfgs" and self.label_sets != LabelSetsSpec():
            raise ValueError(
                "evaluate.label_sets must have loss bce and no ema with evaluate.probe.solver "
                f"lbfgs, got loss {self.label_sets.loss} and ema {self.label_sets.ema}; set "
                "evaluate.probe.solver to sgd"
            )
        return self


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
