"""The `evaluate` section."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from mtcon_ray.base.metrics import OF_CLASSES, Kind
from mtcon_ray.base.registry import BelowOne, Choice, Count, NamedSpec, Positive, Spec, Table
from mtcon_ray.errors import SpecError

# Version of the evaluation protocol. Increase it whenever scores are measured differently: scores
# of different versions are never compared.
EVALUATION = 3
# Norm of the gradient, relative to its norm at zero weights, below which a probe has converged.
CONVERGED = 1e-4

# This package's scores, in addition to OF_CLASSES.
_SETS = ("map", "map_std", "f1_micro", "f1_macro", "f1_sample")
OWN = ("accuracy", "accuracy_std", *_SETS)

Select = Literal["last", "best"]
Penalty = Annotated[float, Field(gt=0, le=1e6)]
# Ways to train the probe of the test evaluation.
SOLVERS: Table[Any] = Table("solver", "solver")
METRICS: Table[Any] = Table("metric")
Penalties = Annotated[tuple[Penalty, ...], Field(min_length=1, max_length=20)]


class ShortProbeSpec(Spec):
    """The probe that computes the objective, val/accuracy or val/score, during training.

    It is a logistic regression with a single penalty, solved until the gradient is 3e-3 of its
    value at zero weights (the test evaluation: below 1e-4). It uses and scores subsets of train and
    val chosen by the trial's seed.
    """

    penalty: Penalty = Field(1e-2, description="half of it times the squared weight norm is added")
    max_items: int = Field(800, ge=2, description="most training items, and most validation items")


@SOLVERS.declare("lbfgs")
class ConvergedProbeSpec(Spec):
    """Logistic regression on standardised features, minimised by L-BFGS until convergence.

    Deterministic: accuracies do not depend on a seed, on the order of the items, or on the scale
    of the features.
    """

    penalties: Penalties = Field(
        (1e-1, 1e-2, 1e-3, 1e-4, 1e-5),
        description="L2 penalties: half of a penalty times the squared norm of the weights is "
        "added. For each label the penalty with the best val score is used",
    )


@SOLVERS.declare("sgd")
class SGDProbeSpec(Spec):
    """Stochastic gradient descent at a constant rate, on unscaled features, as in CCN.

    The result depends on the order of the minibatches and on the scale of the features.
    """

    epochs: Count = Field(20, description="passes over train. The best pass on val is used")
    batch_size: Count = Field(64, description="items per step")
    lr: Positive = Field(0.1, description="learning rate")
    momentum: BelowOne = Field(0.0, description="of the steps")
    weight_decay: float = Field(0.0, ge=0, description="of the weights")
    augment: bool = Field(
        False, description="each pass has a new view of each image of train, drawn as a first view"
    )


class MetricSpec(NamedSpec):
    """Base of plugins' metrics. `kinds` are the kinds of labels with this score."""

    kinds: ClassVar[tuple[Kind, ...]] = ("classes",)

    def score(self, h_ND: Any, y_N: Any) -> Any:
        """Returns the score of a label column, a number. It is not tracked if it is not finite.

        h_ND are the features of the test items with a known label, float32, and y_N their labels:
        int64 [N], or uint8 [N, L] of a label set.
        """
        raise NotImplementedError

    def checked(self, label: str, h_ND: Any, y_N: Any) -> float:
        """Returns the score. Raises SpecError unless it is a number."""
        value = self.score(h_ND, y_N)
        shape = list(getattr(value, "shape", ()))
        if shape or not hasattr(value, "__float__"):
            what = f"metric {self.name!r}: the score of {label!r}"
            raise SpecError(f"{what} must be a number, got {shape or type(value).__name__}")
        return float(value)


ProbeSpec = ConvergedProbeSpec | SGDProbeSpec


class EvaluateSpec(Spec):
    """Schedule and settings of the probes of the frozen encoder."""

    every: Count = Field(1, description="epochs between probes of val. The last is probed too")
    select: Select = Field(
        "last",
        description="epoch of the network for a trial's value, test scores, model.pt and export: "
        "the last epoch, or the epoch with the best value",
    )
    test: bool = Field(
        True,
        description="measure scores on test at a trial's end. false: `mtcon-ray evaluate` does",
    )
    short_probe: ShortProbeSpec = ShortProbeSpec()
    probe: Annotated[ProbeSpec, Choice(SOLVERS, "lbfgs")] = ConvergedProbeSpec()
    bootstrap: int = Field(1000, ge=10, le=10**6, description="resamples for deviations of mAP")
    neighbours: Count = Field(20, description="training items that vote in the k-NN accuracy")
    metrics: tuple[Annotated[MetricSpec, Choice(METRICS)], ...] = Field(
        (), description="further scores of plugins in the test evaluation, test/NAME/LABEL"
    )
    batch_size: Count = Field(256, description="images per forward pass of the encoder")

    def check_metrics(self) -> None:
        """Raises ValueError unless each plugin's metric has a name of its own."""
        names = [metric.name for metric in self.metrics]
        if taken := [n for n in names if names.count(n) > 1 or n in (*OWN, *OF_CLASSES)]:
            raise ValueError(
                f"evaluate.metrics must each have a name of their own, got {taken[0]!r}; "
                "register the class under another name"
            )


def selected_epoch(values: Mapping[int, float], select: Select) -> int | None:
    """Returns the epoch of the selected network, from validation values by epoch.

    With "last" the last epoch. With "best" the first epoch with the highest finite value, or the
    last epoch if no value is finite. None if `values` is empty.
    """
    finite = [epoch for epoch, value in sorted(values.items()) if math.isfinite(value)]
    if select == "last" or not finite:
        return max(values, default=None)
    return max(finite, key=lambda epoch: values[epoch])
