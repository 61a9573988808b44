"""Linear probe of a number on fixed features: ridge regression in closed form.

Closed form rather than SGD, because no learning rate for a mean squared error suits features of
every scale.
"""

import torch

from mtcon_ray.evaluation.probe import LabelledFeatures, NumberProbe, finite

ROUNDING, TINY = 1e-12, 1e-300


def train_number_probe(
    label: str,
    train: LabelledFeatures,
    penalties: tuple[float, ...],
    *,
    val: LabelledFeatures | None = None,
) -> NumberProbe:
    """Returns the ridge regression with the penalty of highest R^2 on `val`.

    Without `val` the middle entry of `penalties` is used. A penalty is a share of the features'
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

    def fit(penalty: float) -> NumberProbe:
        weight_D = torch.linalg.solve(covariance_DD / scale + penalty * unit_DD, slope_D / scale)
        weight = torch.cat([weight_D, (mean - mean_D @ weight_D)[None]])[:, None]
        return NumberProbe(label, weight, f"with penalty {penalty:g}")

    if val is None:
        return fit(penalties[len(penalties) // 2])
    return max(map(fit, penalties), key=lambda probe: probe.score(val))
