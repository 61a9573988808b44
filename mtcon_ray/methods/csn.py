"""CSN: triplets, each compared under the mask of its condition."""

from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.triplet import masked_distances
from mtcon_ray.methods.triplet import TripletMethod, random_masks
from mtcon_ray.spec.methods.triplet import CSNSpec
from mtcon_ray.spec.problem import Problem


class CSN(TripletMethod):
    """Conditional similarity network, Veit et al. 2017, arXiv:1603.07810, with a mask per task."""

    spec: CSNSpec

    def __init__(self, spec: CSNSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        self.beta = nn.Parameter(random_masks(len(self.conditions), problem.head_dim, problem.seed))

    def masks(self, batch: Batch) -> Tensor:
        """Returns ReLU(beta) of each triplet's condition, [B, D]."""
        assert batch.condition is not None
        return self.beta.relu()[batch.condition]

    def distances(self, z_B3D: Tensor, batch: Batch) -> Tensor:
        return masked_distances(z_B3D, self.masks(batch))
