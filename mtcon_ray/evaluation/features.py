"""Feature extraction with the frozen network: each item once, without augmentation."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.to_device import send
from mtcon_ray.data.views import evaluation_views
from mtcon_ray.models.network import Network
from mtcon_ray.spec.views import ViewsSpec

Found = TypeVar("Found")


def extract_features(
    network: Network,
    images: np.ndarray,
    rows: np.ndarray,
    views: ViewsSpec,
    *,
    batch_size: int,
    device: torch.device,
    autocast_dtype: torch.dtype | None = None,
) -> Tensor:
    """Returns the pooled features of these rows of `images`, float32 [len(rows), D] on the CPU.

    images is uint8 [N, S, S, 3] and may be a memory map, read batch by batch. The network runs
    in eval mode, so batch-norm statistics do not change. Its mode is restored afterwards.
    """
    batches = _by_batch(
        network, network.features, images, rows, views, batch_size, device, autocast_dtype
    )
    # A single copy to the CPU at the end: a copy per batch would be a device synchronisation, and
    # the device would be idle while the next batch is read.
    return torch.cat([h_ND.float() for h_ND in batches]).cpu()


def extract_projections(
    network: Network,
    images: np.ndarray,
    rows: np.ndarray,
    views: ViewsSpec,
    *,
    batch_size: int,
    device: torch.device,
) -> dict[str, Tensor]:
    """Returns each head's output for these rows of `images`, by the head's name.

    The outputs are float32 [len(rows), width of the head] on the CPU. All else is as in
    `extract_features`.
    """
    batches = _by_batch(network, network, images, rows, views, batch_size, device, None)
    return {name: torch.cat([z[name].float() for z in batches]).cpu() for name in network.names}


def _by_batch(
    network: Network,
    forward: Callable[[Tensor], Found],
    images: np.ndarray,
    rows: np.ndarray,
    views: ViewsSpec,
    batch_size: int,
    device: torch.device,
    autocast_dtype: torch.dtype | None,
) -> list[Found]:
    """Returns what `forward` computes of each batch of evaluation views, on the device."""
    batches: list[Found] = []
    was_training = network.training
    network.eval()
    # cuDNN would time its algorithms again for each split's last batch, because its size differs.
    tried, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        with (
            torch.inference_mode(),
            torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None),
        ):
            for start in range(0, len(rows), batch_size):
                pixels = torch.from_numpy(images[rows[start : start + batch_size]])
                batches.append(forward(evaluation_views(send(pixels, device), views)))
    finally:
        network.train(was_training)
        torch.backends.cudnn.benchmark = tried
    return batches
