"""Common base of CSN and SCE-Net: triplets, an embedding head, masks over its dimensions, a hinge.

An item of a batch is a triplet. Its three rows are three images: the anchor, far (the negative)
and close (the positive).
"""

from abc import abstractmethod
from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor, nn

from mtcon_ray.base import metrics
from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples
from mtcon_ray.data.triplets import triplets
from mtcon_ray.losses.triplet import embedding_size, mask_size, triplet_hinge
from mtcon_ray.methods.base import Method, MethodOutput
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network
from mtcon_ray.spec.methods.triplet import TripletSpec
from mtcon_ray.spec.problem import Problem

HEAD = "embedding"


class TripletMethod(Method):
    """A hinge on masked distances and two regularisers, as in the authors' code of CSN.

    Code: github.com/andreasveit/conditional-similarity-networks. The embedding, model.head_dim
    wide, is not normalised. The losses are named `triplet`, `embedding` and `mask`. Penalties are
    included in `embedding` and `mask`.
    """

    spec: TripletSpec

    def __init__(self, spec: TripletSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        self.conditions = problem.of_kind("classes")

    def name_heads(self) -> tuple[str, ...]:
        return (HEAD,)

    def make_network(self, encoder: Encoder) -> Network:
        head = nn.Linear(encoder.width, self.problem.head_dim)
        return Network(encoder, {HEAD: head}, probed=HEAD)

    def examples(self, dataset: Dataset, seed: int) -> Examples:
        return triplets(dataset.table, self.conditions, number=self.spec.num_triplets, seed=seed)

    @abstractmethod
    def distances(self, z_B3D: Tensor, batch: Batch) -> Tensor:
        """Returns the distances of each triplet's anchor to far and to close, [B, 2]."""

    @abstractmethod
    def masks(self, batch: Batch) -> Tensor:
        """Returns the masks in the mask penalty, [..., D]."""

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns the hinge and the weighted regularisers. z_by_head["embedding"] is [B, 3, D]."""
        z_B3D = z_by_head[HEAD]
        distance_B2 = self.distances(z_B3D, batch)
        losses = {
            "triplet": triplet_hinge(distance_B2, margin=self.spec.margin),
            "embedding": self.spec.embedding_penalty * embedding_size(z_B3D),
            "mask": self.spec.mask_penalty * mask_size(self.masks(batch)),
        }
        return MethodOutput(losses, details=partial(accuracy, distance_B2.detach()))


def accuracy(distance_B2: Tensor) -> dict[str, Tensor]:
    """Returns by metric name the share of triplets with a negative beyond the positive."""
    return {metrics.TRIPLET_ACCURACY: (distance_B2[:, 0] > distance_B2[:, 1]).double().mean()}


def random_masks(num_masks: int, dim: int, seed: int) -> Tensor:
    """Returns CSN's initial masks, [num_masks, dim]: normal, mean 0.9, standard deviation 0.7."""
    generator = torch.Generator().manual_seed(seed)
    return 0.9 + 0.7 * torch.randn(num_masks, dim, generator=generator, device="cpu")
