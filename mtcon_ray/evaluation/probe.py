"""Linear probes on fixed features, and the items for their training and scores."""

from typing import NamedTuple

import torch
from torch import Tensor

from mtcon_ray.base.metrics import Kind
from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.scores import mean_average_precision
from mtcon_ray.spec.problem import MISSING, UNKNOWN_BIT


def finite(features_ND: Tensor) -> Tensor:
    """Returns features as float64. Raises DivergedError if a feature is not finite."""
    if not torch.isfinite(features_ND).all():
        raise DivergedError("features must be finite, got inf or nan; look at the encoder")
    return features_ND.double()


class LabelledFeatures(NamedTuple):
    """Features [n, D] of n items, and their labels by name.

    Classes are int64 [n], MISSING where unknown. Label sets are uint8 [n, L], UNKNOWN_BIT where
    unknown.
    """

    features: Tensor
    labels: dict[str, Tensor]

    def known(self, label: str) -> "LabelledFeatures":
        """Returns the items with a known value of this label, without their other labels.

        A label set is known if at least one of its bits is.
        """
        y = self.labels[label]
        is_known = (y != UNKNOWN_BIT).any(dim=1) if y.dim() == 2 else y != MISSING
        return LabelledFeatures(self.features[is_known], {label: y[is_known]})


class LinearProbe(NamedTuple):
    """Linear layer of a label: weight [D + 1, C]. The last row is the offset.

    For classes it is a softmax layer, for a label set a layer of sigmoids. `made` describes the
    training for messages, such as "after 3 epochs".
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
                "nan; look at the encoder's features, or lower evaluate.probe.lr of solver sgd"
            )
        return logits_NC

    def predicted(self, data: LabelledFeatures) -> Tensor:
        """Returns the predictions. Raises as `scores`.

        These are the classes with the highest logit, or the logits of a label set.
        """
        scores_NC = self.scores(data.features)
        return scores_NC if self.kind == "set" else scores_NC.argmax(dim=1)

    def correct(self, data: LabelledFeatures) -> Tensor:
        """Returns True for each correctly predicted class, bool [n]. Raises as `scores`."""
        return self.predicted(data) == data.labels[self.label]

    def score(self, data: LabelledFeatures) -> float:
        """Returns the score on the items with a known value. Raises as `scores`.

        This is the accuracy, or the mean average precision of a label set.
        """
        if self.kind == "set":
            return mean_average_precision(self.predicted(data), data.labels[self.label])
        return self.correct(data.known(self.label)).double().mean().item()


class Fit(NamedTuple):
    """Probes by label.

    gradient is the largest relative gradient norm of the probes: the norm at the solution over the
    norm at zero weights. None if they were trained by SGD.
    """

    probes: dict[str, LinearProbe]
    gradient: float | None
