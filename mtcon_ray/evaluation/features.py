"""Feature extraction with the frozen encoder: each item once, without augmentation."""

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.to_device import send
from mtcon_ray.data.views import ViewsSpec, evaluation_views
from mtcon_ray.models.network import Network


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

    images is uint8 [N, S, S, 3] and may be a memory map; one batch is read at a time. The network
    runs in eval mode, so batch-norm statistics do not change; its mode is restored afterwards.
    """
    batches: list[Tensor] = []
    was_training = network.training
    network.eval()
    try:
        with (
            torch.inference_mode(),
            torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None),
        ):
            for start in range(0, len(rows), batch_size):
                pixels = torch.from_numpy(images[rows[start : start + batch_size]])
                x_NCHW = evaluation_views(send(pixels, device), views)
                batches.append(network.features(x_NCHW).float())
    finally:
        network.train(was_training)
    # One copy to the CPU at the end: a copy per batch would synchronise with the device, which
    # would then be idle while the next batch is read.
    return torch.cat(batches).cpu()
