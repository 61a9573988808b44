"""Linear probes on fixed features, the items for their training and scores, and ridge regression.

A number has a probe in closed form rather than by SGD, because no learning rate for a mean squared
error suits features of every scale.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.base.metrics import Kind
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.scores import mean_average_precision, r_squared
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT

# Of the ridge regression.
PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
ROUNDING, TINY = 1e-12, 1e-300


def finite(features_ND: Tensor) -> Tensor:
    """Returns features as float64. Raises DivergedError if a feature is not finite."""
    if not torch.isfinite(features_ND).all():
        raise DivergedError("features must be finite, got inf or nan; look at the encoder")
    return features_ND.double()


@dataclass(frozen=True)
class LabelledFeatures:
    """Features [n, D] of n items, and their labels by name.

    Classes are int64 [n], MISSING where unknown. Label sets are uint8 [n, L], UNKNOWN_BIT where
    unknown. Numbers are float64 [n], NaN where unknown.
    """

    features: Tensor
    labels: dict[str, Tensor]

    def known(self, label: str) -> "LabelledFeatures":
        """Returns the items with a known value of this label, without their other labels.

        A label set is known if at least one of its bits is.
        """
        y = self.labels[label]
        if y.is_floating_point():
            is_known = ~y.isnan()
        else:
            is_known = (y != UNKNOWN_BIT).any(dim=1) if y.dim() == 2 else y != MISSING
        return LabelledFeatures(self.features[is_known], {label: y[is_known]})


@dataclass(frozen=True)
class LinearProbe:
    """Linear layer of a label: weight [D + 1, C]. The last row is the offset.

    For classes it is a softmax layer, for a label set a layer of sigmoids, for a number a linear
    function. `made` describes the training for messages, such as "after 3 epochs".
    """

    kind: Kind
    label: str
    weight: Tensor
    made: str

    def scores(self, features_ND: Tensor) -> Tensor:
        """Returns the outputs [n, C]. Raises DivergedError if an output is not finite."""
        weight = self.weight
        logits_NC = torch.addmm(weight[-1], features_ND.to(weight.dtype), weight[:-1])
        if not torch.isfinite(logits_NC).all():
            raise DivergedError(
                f"outputs of the probe of {self.label!r} {self.made} must be finite, got inf or "
                "nan; look at the encoder's features, or lower evaluate.probe.lr, which solver "
                "sgd has"
            )
        return logits_NC

    def predicted(self, data: LabelledFeatures) -> Tensor:
        """Returns the predictions. Raises as `scores`.

        These are the classes with the highest logit, the logits of a label set, or numbers,
        standardised as the labels were.
        """
        scores_NC = self.scores(data.features)
        match self.kind:
            case "classes":
                return scores_NC.argmax(dim=1)
            case "set":
                return scores_NC
            case "number":
                return scores_NC[:, 0]

    def correct(self, data: LabelledFeatures) -> Tensor:
        """Returns True for each correctly predicted class, bool [n]. Raises as `scores`."""
        return self.predicted(data) == data.labels[self.label]

    def score(self, data: LabelledFeatures) -> float:
        """Returns the score on the items with a known value. Raises as `scores`.

        This is the accuracy, the mean average precision of a label set, or R^2 of a number.
        """
        match self.kind:
            case "classes":
                return self.correct(data.known(self.label)).double().mean().item()
            case "set":
                return mean_average_precision(self.predicted(data), data.labels[self.label])
            case "number":
                return r_squared(self.predicted(data), data.labels[self.label])


class Fit(NamedTuple):
    """Probes by label.

    gradient is the largest relative gradient norm of the probes of classes and label sets: the norm
    at the solution over the norm at zero weights. None if they were trained by SGD.
    """

    probes: dict[str, LinearProbe]
    gradient: float | None


def train_number_probe(
    label: str, train: LabelledFeatures, *, val: LabelledFeatures | None = None
) -> LinearProbe:
    """Returns the ridge regression with the penalty of highest R^2 on `val`.

    Without `val` the middle entry of PENALTIES is used. A penalty is a share of the features'
    mean variance, and therefore independent of their scale. The offset is not penalised.

    Raises DivergedError if a feature or a prediction is not finite.
    """
    known = train.known(label)
    x_ND, y_N = finite(known.features), known.labels[label]
    mean_D, mean = x_ND.mean(dim=0), y_N.mean()
    covariance_DD = (x_ND - mean_D).T @ (x_ND - mean_D) / len(x_ND)
    slope_D = (x_ND - mean_D).T @ (y_N - mean) / len(x_ND)
    # If all features are constant, their variance is rounding only. The second term keeps the
    # slope from being divided by this variance, the third term avoids 0 / 0.
    scale = covariance_DD.diagonal().mean() + ROUNDING * x_ND.square().mean() + TINY
    unit_DD = torch.eye(len(slope_D), dtype=torch.float64, device=x_ND.device)

    def fit(penalty: float) -> LinearProbe:
        weight_D = torch.linalg.solve(covariance_DD / scale + penalty * unit_DD, slope_D / scale)
        weight = torch.cat([weight_D, (mean - mean_D @ weight_D)[None]])[:, None]
        return LinearProbe("number", label, weight, f"with penalty {penalty:g}")

    if val is None:
        return fit(PENALTIES[len(PENALTIES) // 2])
    return max(map(fit, PENALTIES), key=lambda probe: probe.score(val))
