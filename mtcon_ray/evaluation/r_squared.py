"""R^2 of predicted numbers, the coefficient of determination."""

import torch
from torch import Tensor


def r_squared(predicted_N: Tensor, y_N: Tensor) -> float:
    """Returns R^2 = 1 - sum (y - prediction)^2 / sum (y - mean y)^2, or 0 if y is constant.

    Items with y = NaN are left out.
    """
    known_N = ~y_N.isnan()
    predicted_N, y_N = predicted_N[known_N], y_N[known_N]
    return weighted_r_squared(predicted_N, y_N, torch.ones_like(y_N)[:, None]).item()


def weighted_r_squared(predicted_N: Tensor, y_N: Tensor, counts_NK: Tensor) -> Tensor:
    """Returns R^2 under K weightings of the items, float64 [K].

    counts_NK is how often each item counts in each weighting. y_N holds no NaN.
    """
    share_NK = counts_NK.double() / counts_NK.double().sum(dim=0)
    error_K = (predicted_N - y_N).square() @ share_NK
    centred_N = y_N - y_N.mean()
    spread_K = centred_N.square() @ share_NK - (centred_N @ share_NK).square()
    # A resample may hold a single value of y. Its spread is then rounding only.
    varies_K = spread_K > 1e-12 * centred_N.square().max()
    return torch.where(varies_K, 1 - error_K / spread_K.where(varies_K, 1), 0)
