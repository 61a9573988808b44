"""Feature extraction with the frozen network: each item once, without augmentation."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.to_device import send
from mtcon_ray.data.views import evaluation_views
from mtcon_ray.models.network import Network
from mtcon_ray.spec.views import ViewsSpec


@contextmanager
def evaluating(network: Network) -> Iterator[None]:
    """Puts the network into eval mode without gradients, and restores its mode afterwards."""
    was_training = network.training
    network.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        network.train(was_training)


def extract_features(
    network: Network,
    images: np.ndarray,
    rows: np.ndarray,
    views: ViewsSpec,
    *,
    batch_size: int,
    device: torch.device,
    autocast_dtype: torch.dtype | None = None,
    head: str | None = None,
) -> Tensor:
    """Returns the pooled features of these rows of `images`, float32 [len(rows), D] on the CPU.

    With `head` it returns the output of this head instead. images is uint8 [N, S, S, 3] and may be
    a memory map, read batch by batch. The network runs in eval mode, so batch-norm statistics do
    not change. Its mode is restored afterwards.
    """
    batches = []
    # cuDNN would time its algorithms again for each split's last batch, because its size differs.
    tried, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        with (
            evaluating(network),
            torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None),
        ):
            for start in range(0, len(rows), batch_size):
                pixels = torch.from_numpy(images[rows[start : start + batch_size]])
                x_NCHW = evaluation_views(send(pixels, device), views)
                batches.append(network.features(x_NCHW) if head is None else network(x_NCHW)[head])
    finally:
        torch.backends.cudnn.benchmark = tried
    # A single copy to the CPU at the end: a copy per batch would be a device synchronisation, and
    # the device would be idle while the next batch is read.
    return torch.cat([h_ND.float() for h_ND in batches]).cpu()
