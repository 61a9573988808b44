"""SCE-Net: triplets, compared under masks (concepts) with weights that depend on the images."""

import torch
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.triplet import fused_distances, unit_rows
from mtcon_ray.methods.triplet import TripletMethod, random_masks
from mtcon_ray.spec.methods.triplet import SCENetSpec
from mtcon_ray.spec.problem import Problem

# Width of the network for concept weights, as in the authors' code.
HIDDEN = 32


class SCENet(TripletMethod):
    """Similarity condition embedding network, Tan et al. 2019, arXiv:1908.08589.

    The triplets are drawn as for CSN. Their conditions are not used.
    """

    spec: SCENetSpec

    def __init__(self, spec: SCENetSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        num_concepts = spec.num_concepts or len(self.conditions)
        self.beta = nn.Parameter(random_masks(num_concepts, problem.head_dim, problem.seed))
        # Initial weights follow from the seed alone, and the caller's random state is kept.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(problem.seed)
            self.branch = nn.Sequential(
                nn.Linear(3 * problem.head_dim, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, num_concepts)
            )

    def concept_weights(self, z_B3D: Tensor) -> Tensor:
        """Returns softmax weights [B, 2, K] of the pairs (anchor, far) and (anchor, close).

        Both pairs have the same weights, from all three images, as in the authors' code.
        """
        with torch.autocast(z_B3D.device.type, enabled=False):
            input_B2D = unit_rows(z_B3D).flatten(1)[:, None].expand(-1, 2, -1)
            weight_B2K: Tensor = self.branch(input_B2D).softmax(dim=2)
            return weight_B2K

    def distances(self, z_B3D: Tensor, batch: Batch) -> Tensor:
        return fused_distances(z_B3D, self.masks(batch), self.concept_weights(z_B3D))

    def masks(self, batch: Batch) -> Tensor:
        """Returns the masks of all concepts, [K, D], independent of the triplets."""
        return self.beta.relu()
