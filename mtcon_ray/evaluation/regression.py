"""Linear probe of a number on fixed features: ridge regression in closed form.

Closed form rather than SGD, because no learning rate for a mean squared error suits features of
every scale.
"""

import torch

from mtcon_ray.evaluation.probe import LabelledFeatures, LinearProbe, finite

PENALTIES = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
ROUNDING, TINY = 1e-12, 1e-300


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
