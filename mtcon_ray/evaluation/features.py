"""Features of the frozen network, one vector per item, and their rank."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.batch import send
from mtcon_ray.data.views import draw_parameters, evaluation_views, make_views
from mtcon_ray.evaluation.probe import finite
from mtcon_ray.models.network import Network
from mtcon_ray.spec.views import ViewsSpec

# Epsilon of `rankme` in its source's equation 1, for logarithms of zero.
EPSILON = 1e-7


@contextmanager
def evaluating(network: Network) -> Iterator[None]:
    """Puts the network into eval mode without gradients, and restores its mode afterwards.

    Not after an error, which ends a training.
    """
    was_training = network.training
    network.eval()
    with torch.inference_mode():
        yield
    network.train(was_training)


def extract_features(
    network: Network,
    images: np.ndarray,
    rows: np.ndarray,
    views: ViewsSpec,
    batch_size: int,
    device: torch.device,
    autocast_dtype: torch.dtype | None = None,
    head: str | None = None,
    augment: torch.Generator | None = None,
) -> Tensor:
    """Returns the pooled features of these rows of `images`, float32 [len(rows), D] on the CPU.

    With `head` it returns the output of this head instead. With `augment` each image is replaced by
    a view whose parameters this generator draws. images is uint8 [N, S, S, 3] and may be
    a memory map, read batch by batch. The network runs in eval mode, so batch-norm statistics do
    not change. Its mode is restored afterwards.
    """
    batches, one = [], views.model_copy(update={"num_views": 1})
    drawn = draw_parameters(len(rows), images.shape[1], one, augment) if augment else None
    # cuDNN would time its algorithms again for each split's last batch, because its size differs.
    # After an error the next training sets it by `settle`.
    tried, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    autocast = torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None)
    with evaluating(network), autocast:
        for start in range(0, len(rows), batch_size):
            part = slice(start, start + batch_size)
            pixels = send(torch.from_numpy(images[rows[part]]), device)
            if drawn:
                x_NCHW = make_views(pixels, drawn.rows(part), one)
            else:
                x_NCHW = evaluation_views(pixels, views)
            batches.append(network.features(x_NCHW) if head is None else network(x_NCHW)[head])
    torch.backends.cudnn.benchmark = tried
    # A single copy to the CPU at the end: a copy per batch would be a device synchronisation, and
    # the device would be idle while the next batch is read.
    return torch.cat([h_ND.float() for h_ND in batches]).cpu()


def rankme(features_ND: Tensor) -> float:
    """Returns the effective rank of features divided by their width D, a fraction in [0, 1].

    The effective rank is the exponential of the entropy of the singular values, normalised to sum
    1. Garrido et al. 2023, arXiv:2210.02885, eq. 1, which is of the embeddings of a projection head
    and is not divided. With N < D features the fraction is at most N / D. It is 1 / D if all
    features are equal, and 0 if all are zero.

    Raises DivergedError if a feature is not finite.
    """
    sigma_K = torch.linalg.svdvals(finite(features_ND))
    total = sigma_K.sum()
    if total == 0:
        return 0.0
    share_K = sigma_K / total + EPSILON
    rank = torch.exp(-(share_K * share_K.log()).sum()).item()
    return min(1.0, float(rank) / features_ND.shape[1])
