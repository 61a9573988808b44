"""Features of the frozen encoder: every item once, without augmentation (METHODS 12.1, 12.2)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from mtcon_ray.data.transfer import send
from mtcon_ray.data.views import ViewsSpec, evaluation_views
from mtcon_ray.models.network import Network


class KeptViews:
    """Evaluation views that the probes of one training read again and again, made once.

    At most `most_bytes` of them, and on a CPU alone: elsewhere they cost little, and memory much.
    """

    def __init__(self, most_bytes: int = 256 * 2**20) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._made: dict[bytes, Tensor] = {}

    def views(self, rows: np.ndarray, make: Callable[[], Tensor]) -> Tensor:
        """The views of these rows, the caller's own to change; `make` makes them."""
        key = rows.tobytes()
        if key in self._made:
            return self._made[key].clone()
        made = make()
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
    """Pooled encoder features of these rows of `images`, float32 [len(rows), width] on the CPU.

    images is uint8 [N, S, S, 3] and may be a memory map: one batch of it is read at a time. The
    network runs in eval mode, so batch-norm statistics stay; each module's mode is restored.
    `kept` holds views of the same images, size and normalisation.
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
            views_BCHW = kept.views(index, partial(make, index))
            batches.append(network.features(views_BCHW).float())
    # Once: a device that is asked after each batch stands still while the next one is read.
    return torch.cat(batches).cpu()


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
