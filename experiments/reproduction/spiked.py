"""Simulation of Theorem 1 of MTCon: multi-task contrastive learning of a linear encoder.

MTCon is "Multitask Contrastive Learning" (openreview.net, id UB03wcP8RH). Images are points of a
spiked covariance model, x = U* z + sigma_t eps in d dimensions: U* (d x r, orthonormal) spans the
features that matter, z is N(0, I_r), eps is N(0, I_d), and sigma_t is the noise of task t's images.
A task's label is y_t = w_t . z, with random unit w_t. For such data the minimum of the contrastive
loss with weights alpha_t is known in closed form, without training: the encoder spans the top r
eigenvectors of sum over t of alpha_t v_t v_t^T, where v_t is the sample covariance of images and
labels of task t (the paper's appendix on linear encoders).
"""

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Model:
    """A spiked covariance model with one noise level per task and n items in each task."""

    n: int = 4000
    d: int = 40
    r: int = 3
    sigmas: tuple[float, ...] = (1.0,) * 6

    @property
    def bound(self) -> float:
        """The theorem's bound on the expected error without its constant."""
        return float(np.sqrt(self.d * self.r / self.n) * sum(self.sigmas))

    def with_noise(self, sigma: float) -> "Model":
        """Returns the model with the same noise in each task."""
        return replace(self, sigmas=(sigma,) * len(self.sigmas))


@dataclass(frozen=True)
class Sample:
    """A draw of a model: features U* [d, r], and the covariance v_t of each task, [T, d]."""

    features_DR: np.ndarray
    covariance_TD: np.ndarray


def draw(model: Model, seed: int) -> Sample:
    """Returns a draw. For the same seed, features and label directions are equal at all noises."""
    rng = np.random.default_rng(seed)
    features_DR = np.linalg.qr(rng.standard_normal((model.d, model.r)))[0]
    directions_TR = rng.standard_normal((len(model.sigmas), model.r))
    directions_TR /= np.linalg.norm(directions_TR, axis=1, keepdims=True)
    rows = []
    for sigma, direction_R in zip(model.sigmas, directions_TR, strict=True):
        z_NR = rng.standard_normal((model.n, model.r))
        x_ND = z_NR @ features_DR.T + sigma * rng.standard_normal((model.n, model.d))
        y_N = z_NR @ direction_R
        rows.append((y_N - y_N.mean()) @ x_ND / (model.n - 1))
    return Sample(features_DR, np.stack(rows))


def learned_features(sample: Sample, weight_T: np.ndarray) -> np.ndarray:
    """Returns the orthonormal features [d, r] learned from the tasks with these weights."""
    v_TD = sample.covariance_TD * np.sqrt(weight_T)[:, None]
    # The right singular vectors of the weighted rows are the eigenvectors of their Gram matrix.
    return np.linalg.svd(v_TD, full_matrices=False)[2][: sample.features_DR.shape[1]].T


def sine_distance(a_DR: np.ndarray, b_DR: np.ndarray) -> float:
    """Returns the Frobenius norm of sin Theta, the sines of the angles between two subspaces."""
    cosines = np.linalg.svd(a_DR.T @ b_DR, compute_uv=False)
    return float(np.sqrt(np.clip(1 - cosines**2, 0, None).sum()))


def excess_risk(features_DR: np.ndarray, true_DR: np.ndarray, target_R: np.ndarray) -> float:
    """Returns the excess squared error on a new task y = w . z of the best linear predictor.

    The excess is relative to the true features. The noise of test images has deviation 1.
    """

    def risk(basis_DR: np.ndarray) -> float:
        B_RR = basis_DR.T @ true_DR
        explained = np.linalg.solve(B_RR @ B_RR.T + np.eye(len(B_RR)), B_RR @ target_R)
        return float(target_R @ target_R - (B_RR @ target_R) @ explained)

    return risk(features_DR) - risk(true_DR)
