"""The global batches of a training, a pure function of seed and step."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch, send
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples, epoch_order, step_generator
from mtcon_ray.data.views import draw_parameters, make_views
from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.training.device import ImageFeed
from mtcon_ray.training.distributed import Ranks

# The views of a batch in chunks. Each is computed when called, with equal results on every call.
Chunks = Sequence[Callable[[], Tensor]]


class Batches:
    """The global batches of a training by step. Each rank computes the views of its own items.

    A batch is a pure function of seed and step: examples come from the epoch's permutation, without
    its last incomplete batch, and views from the step's generator. Raises SpecError without a whole
    batch.
    """

    def __init__(
        self, dataset: Dataset, used: Examples, spec: RunSpec, *, device: torch.device, ranks: Ranks
    ) -> None:
        self.views, self.seed, self.ranks = spec.views, spec.seed, ranks
        self.batch_size = batch_size = spec.train.batch_size
        self._examples = used
        # An epoch of nothing, where nothing is trained.
        self.steps_per_epoch = max(len(used) // batch_size, int(not spec.method.trains))
        if self.steps_per_epoch == 0:
            raise SpecError(
                f"train.batch_size must be at most the {len(used)} training examples, got "
                f"{batch_size}"
            )
        self._source_size = dataset.images.shape[1]
        rows, share = np.unique(used.rows_EP), spec.resources.gpu_share
        self._feed = ImageFeed(dataset.images, rows, device, share=share)
        self._columns = [
            {t: torch.from_numpy(column[t]).to(device) for t in dataset.tasks if t in column}
            for column in (dataset.table.labels, dataset.table.multi_hot)
        ]
        # Two epochs: the first images of the next are prefetched in an epoch's last step.
        self._order = lru_cache(2)(partial(epoch_order, np.arange(len(used)), self.seed))

    def __call__(self, step: int) -> tuple[Tensor, Batch]:
        """Returns this rank's views x_NCHW and the labels of the whole global batch.

        The labels of an example are the labels of its first image.
        """
        (make_all,), batch = self.chunks(step, self.batch_size)
        return make_all(), batch

    def chunks(self, step: int, size: int) -> tuple[Chunks, Batch]:
        """Returns the same as a call, but this rank's views in chunks of `size` examples.

        The last chunk may be smaller. Concatenated, they are the views of a call.
        """
        chosen = self._chosen(step)
        rows_BP = self._examples.rows_EP[chosen]
        V = self._examples.views * rows_BP.shape[1]
        generator = step_generator(self.seed, step)
        parameters = draw_parameters(len(rows_BP) * V, self._source_size, self.views, generator)
        share = self.ranks.share(self.batch_size)
        later_BP = self._examples.rows_EP[self._chosen(step + 1)]
        images = self._feed(rows_BP[share].reshape(-1), later=later_BP[share].reshape(-1))
        own = parameters.rows(slice(share.start * V, share.stop * V))
        chunks = [
            partial(make_views, part, own.rows(slice(i * size * V, (i + 1) * size * V)), self.views)
            for i, part in enumerate(images.split(size * rows_BP.shape[1]))
        ]
        return chunks, self._batch(chosen, rows_BP[:, 0])

    def _batch(self, chosen: np.ndarray, rows: np.ndarray) -> Batch:
        device = self._feed.device
        rows_B = send(torch.from_numpy(rows), device)
        labels, sets = ({t: y_N[rows_B] for t, y_N in column.items()} for column in self._columns)
        condition_B, condition_E = None, self._examples.condition_E
        if condition_E is not None:
            condition_B = send(torch.from_numpy(condition_E[chosen]), device)
        return Batch(labels, len(rows), sets, condition_B)

    def seed_of(self, step: int) -> int:
        """Returns a seed for randomness in the network, different on each rank."""
        return (step_generator(self.seed, step).initial_seed() + self.ranks.rank) % 2**64

    def _chosen(self, step: int) -> np.ndarray:
        """Returns the indices of the step's examples."""
        epoch, i = divmod(step, self.steps_per_epoch)
        return self._order(epoch)[i * self.batch_size : (i + 1) * self.batch_size]
