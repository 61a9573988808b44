"""A linear probe of one number on fixed features: ridge regression, in closed form.

Closed, because a mean squared error has no rate that suits features of every scale.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from mtcon_ray.errors import DivergedError
from mtcon_ray.evaluation.bootstrap import resampled_counts
from mtcon_ray.evaluation.probe import LabelledFeatures

ROUNDING, TINY = 1e-12, 1e-300


@dataclass(frozen=True)
class NumberProbe:
    """One linear function of the features: float64 weight [D] and offset [1]."""

    label: str
    weight: Tensor
    offset: Tensor

    def predictions(self, features_ND: Tensor) -> Tensor:
        """Predicted numbers, float64 [n]. Raises DivergedError where one is not finite."""
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
    """The ridge regression of the penalty that is best on `val`; without `val` of the middle one.

    A penalty is a share of the features' mean variance, so that their scale does not matter; the
    offset is not penalised. Raises DivergedError where a feature is not finite.
    """
    known_N = ~train.labels[label].isnan()
    x_ND, y_N = train.features[known_N].double(), train.labels[label][known_N]
    if not torch.isfinite(x_ND).all():
        raise DivergedError("features must be finite, got inf or nan; look at the encoder")
    mean_D, mean = x_ND.mean(dim=0), y_N.mean()
    covariance_DD = (x_ND - mean_D).T @ (x_ND - mean_D) / len(x_ND)
    slope_D = (x_ND - mean_D).T @ (y_N - mean) / len(x_ND)
    # Constant features vary by rounding alone: their slope must not be divided by that.
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
    """1 - squared errors over squared deviations from the mean of y; 0 where y is constant.

    Items whose y is NaN are left out.
    """
    known_N = ~y_N.isnan()
    return weighted_r_squared(predicted_N[known_N], y_N[known_N], None).item()


def r_squared_std(predicted_N: Tensor, y_N: Tensor, resamples: int, seed: int) -> float:
    """Standard deviation of R^2 over draws of the items with replacement."""
    known_N = ~y_N.isnan()
    predicted_N, y_N = predicted_N[known_N].cpu(), y_N[known_N].cpu()
    counts = resampled_counts(len(y_N), resamples, seed)
    return torch.cat([weighted_r_squared(predicted_N, y_N, c_NK) for c_NK in counts]).std().item()


def weighted_r_squared(predicted_N: Tensor, y_N: Tensor, counts_NK: Tensor | None) -> Tensor:
    """R^2 in each of K weightings of the items, [K]."""
    weight_NK = torch.ones_like(y_N)[:, None] if counts_NK is None else counts_NK.double()
    share_NK = weight_NK / weight_NK.sum(dim=0)
    error_K = (predicted_N - y_N).square() @ share_NK
    centred_N = y_N - y_N.mean()
    spread_K = centred_N.square() @ share_NK - (centred_N @ share_NK).square()
    varies_K = spread_K > 1e-12 * centred_N.square().max()
    return torch.where(varies_K, 1 - error_K / spread_K.where(varies_K, 1), 0)
