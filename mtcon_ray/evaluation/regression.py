"""Linear probe of one number on fixed features: ridge regression in closed form.

Closed form rather than SGD, because no learning rate for a mean squared error suits features of
every scale.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.bootstrap import resampled_counts
from mtcon_ray.evaluation.probe import LabelledFeatures
from mtcon_ray.metrics import Kind

ROUNDING, TINY = 1e-12, 1e-300


@dataclass(frozen=True)
class NumberProbe:
    """Linear function of the features: float64 weight [D] and offset [1]."""

    kind: ClassVar[Kind] = "number"
    label: str
    weight: Tensor
    offset: Tensor

    def predictions(self, features_ND: Tensor) -> Tensor:
        """Returns the predicted numbers, float64 [n], standardised as the labels were.

        Raises DivergedError if one is not finite.
        """
        predicted_N = features_ND.double() @ self.weight + self.offset
        if not torch.isfinite(predicted_N).all():
            raise DivergedError(
                f"predictions of the probe of {self.label!r} must be finite, got inf or nan; look "
                "at the encoder's features"
            )
        return predicted_N


def train_number_probe(
    label: str,
    train: LabelledFeatures,
    penalties: tuple[float, ...],
    *,
    val: LabelledFeatures | None = None,
) -> NumberProbe:
    """Returns the ridge regression with the penalty that has the highest R^2 on `val`.

    Without `val` the middle one of `penalties` is used. A penalty is a share of the features' mean
    variance, which makes it independent of their scale. The offset is not penalised.

    Raises DivergedError if a feature or a prediction is not finite.
    """
    known = train.known(label)
    x_ND, y_N = known.features.double(), known.labels[label]
    if not torch.isfinite(x_ND).all():
        raise DivergedError("features must be finite, got inf or nan; look at the encoder")
    mean_D, mean = x_ND.mean(dim=0), y_N.mean()
    covariance_DD = (x_ND - mean_D).T @ (x_ND - mean_D) / len(x_ND)
    slope_D = (x_ND - mean_D).T @ (y_N - mean) / len(x_ND)
    # If all features are constant, their variance is rounding only: the second term keeps the
    # slope from being divided by it, the third one avoids 0 / 0.
    scale = covariance_DD.diagonal().mean() + ROUNDING * x_ND.square().mean() + TINY
    unit_DD = torch.eye(len(slope_D), dtype=torch.float64, device=x_ND.device)

    def fit(penalty: float) -> NumberProbe:
        weight_D = torch.linalg.solve(covariance_DD / scale + penalty * unit_DD, slope_D / scale)
        return NumberProbe(label, weight_D, (mean - mean_D @ weight_D)[None])

    if val is None:
        return fit(penalties[len(penalties) // 2])
    y_val_N = val.labels[label]
    return max(map(fit, penalties), key=lambda p: r_squared(p.predictions(val.features), y_val_N))


def r_squared(predicted_N: Tensor, y_N: Tensor) -> float:
    """Returns R^2 = 1 - sum (y - prediction)^2 / sum (y - mean y)^2; 0 if y is constant.

    Items whose y is NaN are left out.
    """
    known_N = ~y_N.isnan()
    return weighted_r_squared(predicted_N[known_N], y_N[known_N], None).item()


def r_squared_std(predicted_N: Tensor, y_N: Tensor, resamples: int, seed: int) -> float:
    """Returns the bootstrap standard deviation of R^2 over items."""
    known_N = ~y_N.isnan()
    predicted_N, y_N = predicted_N[known_N].cpu(), y_N[known_N].cpu()
    counts = resampled_counts(len(y_N), resamples, seed)
    return torch.cat([weighted_r_squared(predicted_N, y_N, c_NK) for c_NK in counts]).std().item()


def weighted_r_squared(predicted_N: Tensor, y_N: Tensor, counts_NK: Tensor | None) -> Tensor:
    """Returns R^2 under K weightings of the items, float64 [K]; unweighted with None (K = 1).

    counts_NK is how often each item counts in each weighting; y_N holds no NaN.
    """
    weight_NK = torch.ones_like(y_N)[:, None] if counts_NK is None else counts_NK.double()
    share_NK = weight_NK / weight_NK.sum(dim=0)
    error_K = (predicted_N - y_N).square() @ share_NK
    centred_N = y_N - y_N.mean()
    spread_K = centred_N.square() @ share_NK - (centred_N @ share_NK).square()
    # A resample may hold a single value of y; its spread is then rounding only.
    varies_K = spread_K > 1e-12 * centred_N.square().max()
    return torch.where(varies_K, 1 - error_K / spread_K.where(varies_K, 1), 0)
