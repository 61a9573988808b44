"""Features of the frozen encoder: every item once, without augmentation (METHODS 12.1, 12.2)."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

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
    """Pooled encoder features of these rows of `images`, float32 [len(rows), width] on the CPU.

    images is uint8 [N, S, S, 3] and may be a memory map: one batch of it is read at a time. The
    network runs in eval mode, so batch-norm statistics stay; each module's mode is restored.
    """
    batches: list[Tensor] = []
    with (
        _eval_mode(network),
        torch.inference_mode(),
        torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None),
    ):
        for start in range(0, len(rows), batch_size):
            batch = torch.from_numpy(images[rows[start : start + batch_size]]).to(device)
            batches.append(network.features(evaluation_views(batch, views)).float().cpu())
    return torch.cat(batches)


@contextmanager
def _eval_mode(network: nn.Module) -> Iterator[None]:
    # A part that was already in eval mode (a frozen stem) must not come back training.
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
