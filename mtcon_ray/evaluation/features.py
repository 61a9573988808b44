"""Feature extraction with the frozen encoder: each item once, without augmentation."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from mtcon_ray.data.to_device import send
from mtcon_ray.data.views import ViewsSpec, evaluation_views
from mtcon_ray.models.network import Network


class KeptViews:
    """Cache of evaluation views between the validations of one training, `most_bytes` at most.

    Only views on the CPU are cached. On a GPU, views are cheap to compute and memory is scarce.
    """

    def __init__(self, most_bytes: int = 256 * 2**20) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._made: dict[bytes, Tensor] = {}

    def views(self, rows: np.ndarray, make: Callable[[np.ndarray], Tensor]) -> Tensor:
        """Returns the views of these rows; calls `make` with them if they are not cached.

        The caller may change the result: the cache keeps its own copy.
        """
        key = rows.tobytes()
        if key in self._made:
            return self._made[key].clone()
        made = make(rows)
        if made.device.type == "cpu" and self.num_bytes + made.nbytes <= self.most_bytes:
            self._made[key] = made.clone()
            self.num_bytes += made.nbytes
        return made


def extract_features(
    network: Network,
    images: np.ndarray,
    rows: np.ndarray,
    views: ViewsSpec,
    *,
    batch_size: int,
    device: torch.device,
    autocast_dtype: torch.dtype | None = None,
    kept: KeptViews | None = None,
) -> Tensor:
    """Returns the pooled features of these rows of `images`, float32 [len(rows), D] on the CPU.

    images is uint8 [N, S, S, 3] and may be a memory map; one batch is read at a time. The network
    runs in eval mode, so batch-norm statistics do not change; each module's mode is restored
    afterwards. `kept` must only hold views of the same images, view size and normalisation.
    """
    kept = kept or KeptViews(0)
    batches: list[Tensor] = []

    def make(index: np.ndarray) -> Tensor:
        return evaluation_views(send(torch.from_numpy(images[index]), device), views)

    with (
        _eval_mode(network),
        torch.inference_mode(),
        torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None),
    ):
        for start in range(0, len(rows), batch_size):
            index = rows[start : start + batch_size]
            batches.append(network.features(kept.views(index, make)).float())
    # One copy to the CPU at the end: a copy per batch would synchronise with the device, which
    # would then be idle while the next batch is read.
    return torch.cat(batches).cpu()


@contextmanager
def _eval_mode(network: nn.Module) -> Iterator[None]:
    # `network.train()` would not do: a module that was in eval mode (a frozen stem) must stay so.
    training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
