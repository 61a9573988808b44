"""The peers of `gpu peers`: training loops as the guides of their packages write them.

All loops start from a copy of our network, and have our views, batches and number of steps.
Supervised peers have SupContrast's loss on each label. Each function returns an epoch.
"""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.machine import finish, usable_cores
from benchmarks.training import peer_loss, supcontrast
from benchmarks.views import Photographs, jpeg, lightly_recipe
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.spec.views import ViewsSpec
from mtcon_ray.training.optimizer import match_strides
from mtcon_ray.training.trainer import Trainer

# JPEG files in memory, or decoded images [N, S, S, 3].
Images = list[bytes] | np.ndarray
Epoch = Callable[[], object]
RATE = 0.01


def as_supcontrast(like: Trainer, labels: Dataset, images: Images, *, half: bool) -> Epoch:
    """PIL images, torchvision's transforms, a DataLoader with a worker per core."""
    dtype = like.learner.autocast_dtype if half else None
    return partial(next, supcontrast(like, labels, images, dtype))


def as_lightly(like: Trainer, labels: Dataset, images: Images) -> Epoch:
    """lightly's SimCLR: its transform, projection head and NT-Xent loss, which need no labels."""
    from lightly.loss import NTXentLoss
    from lightly.models.modules import SimCLRProjectionHead

    del labels
    spec, device, dtype = like.spec, like.device, like.learner.autocast_dtype
    transform, width = lightly_recipe(spec.views), like.network.encoder.width
    assert transform is not None
    head = SimCLRProjectionHead(width, width, spec.model.head_dim)
    encoder = deepcopy(like.network.encoder).to(memory_format=torch.contiguous_format)
    model = nn.Sequential(encoder, head).to(device)
    criterion = NTXentLoss(temperature=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4)
    loader = DataLoader(
        Photographs(images, transform),
        spec.train.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=usable_cores(),
        persistent_workers=True,
        pin_memory=device.type == "cuda",
    )

    def epoch() -> None:
        for views_BVCHW in loader:
            x0_NCHW, x1_NCHW = views_BVCHW.to(device, non_blocking=True).unbind(1)
            with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
                loss = criterion(model(x0_NCHW), model(x1_NCHW))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        finish(device)

    return epoch


def decoded(images: Images) -> np.ndarray:
    """Returns images [N, S, S, 3], decoded by a thread per core."""
    if isinstance(images, np.ndarray):
        return images
    with ThreadPoolExecutor(usable_cores()) as pool:
        read = pool.map(lambda each: np.asarray(Image.open(io.BytesIO(each))), images)
        return np.stack(list(read))


Views = Callable[[Tensor], Tensor]
MakeViews = Callable[[ViewsSpec], Views]


class OnTheDevice:
    """A compiled network, trained on images and views on the device.

    With autocast, channels_last and a fused optimizer.
    """

    def __init__(self, like: Trainer) -> None:
        self.like, self.device = like, like.device
        self.network = deepcopy(like.network).to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=RATE, momentum=0.9, weight_decay=1e-4, fused=True
        )
        # Each peer pays for its own compilation, to code for these sizes alone, with CUDA graphs.
        torch.compiler.reset()
        options: dict[str, Any] = {"mode": "reduce-overhead", "dynamic": False}
        self.objective = torch.compile(self._loss, disable=self.device.type != "cuda", **options)

    def _loss(self, x_NCHW: Tensor, labels: dict[str, Tensor]) -> Tensor:
        dtype = self.like.learner.autocast_dtype
        with torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None):
            return peer_loss(self.network, x_NCHW, labels)

    def train(self, labels: Dataset, images: Images, make: MakeViews) -> Epoch:
        """Returns an epoch with views made from float images [B, 3, S, S] in [0, 1]."""
        rows, batch = labels.table.rows("train"), self.like.spec.train.batch_size
        known = {t: torch.from_numpy(labels.table.labels[t][rows]) for t in labels.tasks}
        of_task = {task: each.to(self.device) for task, each in known.items()}
        stored_NCHW = torch.from_numpy(decoded(images)).to(self.device).movedim(-1, 1)
        spec = self.like.spec.views
        views = make(spec)
        # Moments on the device: a Normalize of a list waits for the device in each step.
        mean_C11, std_C11 = (
            torch.tensor(each, device=self.device)[:, None, None] for each in (spec.mean, spec.std)
        )

        def epoch() -> None:
            order_N = torch.randperm(len(stored_NCHW), device=self.device)
            for item_B in order_N.split(batch)[: len(order_N) // batch]:
                x_BCHW = stored_NCHW[item_B].float() / 255
                pairs = torch.stack([views(x_BCHW), views(x_BCHW)], dim=1).flatten(0, 1)
                x_NCHW = (pairs - mean_C11) / std_C11
                x_NCHW = x_NCHW.contiguous(memory_format=torch.channels_last)
                self.optimizer.zero_grad()
                self.objective(x_NCHW, {t: each[item_B] for t, each in of_task.items()}).backward()
                match_strides(p for p in self.network.parameters() if p.grad is not None)
                self.optimizer.step()
            finish(self.device)

        return epoch


def by_kornia(spec: ViewsSpec) -> Views:
    """Returns kornia's augmentations, with parameters of its own for each image."""
    import kornia.augmentation as K

    found: Views = K.AugmentationSequential(
        # "slice", the default, crops image after image.
        K.RandomResizedCrop(
            (spec.size, spec.size), spec.crop_scale, spec.crop_ratio, cropping_mode="resample"
        ),
        K.RandomHorizontalFlip(p=spec.flip),
        K.ColorJitter(spec.brightness, spec.contrast, spec.saturation, spec.hue, p=spec.jitter),
        K.RandomGrayscale(p=spec.grayscale),
        data_keys=["input"],
    )
    return found


def by_torchvision(spec: ViewsSpec) -> Views:
    """Returns torchvision's transforms v2, with the same parameters for all images of a batch."""
    from torchvision.transforms import v2

    jitter = v2.ColorJitter(spec.brightness, spec.contrast, spec.saturation, spec.hue)
    found: Views = v2.Compose(
        [
            v2.RandomResizedCrop(spec.size, spec.crop_scale, spec.crop_ratio),
            v2.RandomHorizontalFlip(spec.flip),
            v2.RandomApply([jitter], spec.jitter),
            v2.RandomGrayscale(spec.grayscale),
        ]
    )
    return found


def jpegs(images: np.ndarray) -> list[bytes]:
    """Returns JPEG files of images."""
    with ThreadPoolExecutor(usable_cores()) as pool:
        return list(pool.map(jpeg, images))
