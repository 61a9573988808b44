"""CSN and SCE-Net: triplets, an embedding head, masks over its dimensions, a hinge.

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
from mtcon_ray.data.sampling import Examples, triplets
from mtcon_ray.losses import triplet as losses
from mtcon_ray.methods.base import Method, MethodOutput
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network
from mtcon_ray.spec.methods import supervised as specs
from mtcon_ray.spec.problem import Problem

HEAD = "embedding"
# Width of the network for the concept weights of SCE-Net, as in the authors' code.
HIDDEN = 32


class TripletMethod(Method):
    """A hinge on masked distances and two regularisers, as in the authors' code of CSN.

    Code: github.com/andreasveit/conditional-similarity-networks. The embedding, model.head_dim
    wide, is not normalised. The losses are named `triplet`, `embedding` and `mask`. Penalties are
    included in `embedding` and `mask`.
    """

    spec: specs.TripletSpec

    def __init__(
        self, spec: specs.TripletSpec, problem: Problem, num_masks: int | None = None
    ) -> None:
        super().__init__(spec, problem)
        self.conditions = problem.of_kind("classes")
        # The initial masks of CSN: normal, mean 0.9, standard deviation 0.7.
        generator = torch.Generator().manual_seed(problem.seed)
        shape = num_masks or len(self.conditions), problem.head_dim
        self.beta = nn.Parameter(0.9 + 0.7 * torch.randn(shape, generator=generator, device="cpu"))

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
        parts = {
            "triplet": losses.triplet_hinge(distance_B2, margin=self.spec.margin),
            "embedding": self.spec.embedding_penalty * losses.embedding_size(z_B3D),
            "mask": self.spec.mask_penalty * losses.mask_size(self.masks(batch)),
        }
        return MethodOutput(parts, details=partial(accuracy, distance_B2.detach()))


def accuracy(distance_B2: Tensor) -> dict[str, Tensor]:
    """Returns by metric name the share of triplets with a negative beyond the positive."""
    return {metrics.TRIPLET_ACCURACY: (distance_B2[:, 0] > distance_B2[:, 1]).double().mean()}


class CSN(TripletMethod):
    """Conditional similarity network, Veit et al. 2017, arXiv:1603.07810, with a mask per task."""

    def masks(self, batch: Batch) -> Tensor:
        """Returns ReLU(beta) of each triplet's condition, [B, D]."""
        assert batch.condition is not None
        return self.beta.relu()[batch.condition]

    def distances(self, z_B3D: Tensor, batch: Batch) -> Tensor:
        return losses.masked_distances(z_B3D, self.masks(batch))


class SCENet(TripletMethod):
    """Similarity condition embedding network, Tan et al. 2019, arXiv:1908.08589.

    The triplets are drawn as for CSN. Their conditions are not used.
    """

    def __init__(self, spec: specs.SCENetSpec, problem: Problem) -> None:
        super().__init__(spec, problem, spec.num_concepts)
        # Initial weights follow from the seed alone, and the caller's random state is kept.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(problem.seed)
            first = nn.Linear(3 * problem.head_dim, HIDDEN)
            self.branch = nn.Sequential(first, nn.ReLU(), nn.Linear(HIDDEN, len(self.beta)))

    def concept_weights(self, z_B3D: Tensor) -> Tensor:
        """Returns softmax weights [B, 2, K] of the pairs (anchor, far) and (anchor, close).

        Both pairs have the same weights, from all three images, as in the authors' code.
        """
        with torch.autocast(z_B3D.device.type, enabled=False):
            input_B2D = losses.unit_rows(z_B3D).flatten(1)[:, None].expand(-1, 2, -1)
            weight_B2K: Tensor = self.branch(input_B2D).softmax(dim=2)
            return weight_B2K

    def distances(self, z_B3D: Tensor, batch: Batch) -> Tensor:
        return losses.fused_distances(z_B3D, self.masks(batch), self.concept_weights(z_B3D))

    def masks(self, batch: Batch) -> Tensor:
        """Returns the masks of all concepts, [K, D], independent of the triplets."""
        return self.beta.relu()
