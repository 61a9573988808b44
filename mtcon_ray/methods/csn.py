"""CSN: triplets, each compared under the mask of its condition."""

from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.triplet import mask_size, masked_distances
from mtcon_ray.methods.triplet import TripletMethod, disjoint_masks, random_masks
from mtcon_ray.spec.methods.triplet import CSNSpec
from mtcon_ray.spec.problem import Problem

# Entries of a disjoint mask outside its own dimensions, as in the authors' code. Learned masks do
# not start at 0, because ReLU has no gradient there.
OUTSIDE = {"learned_disjoint": 0.1, "fixed_disjoint": 0.0}


class CSN(TripletMethod):
    """Conditional similarity network, Veit et al. 2017, arXiv:1603.07810, with a mask per task."""

    Spec = CSNSpec

    spec: CSNSpec

    def __init__(self, spec: CSNSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        shape = len(self.conditions), problem.head_dim
        if spec.masks == "learned":
            beta = random_masks(*shape, problem.seed)
        else:
            beta = disjoint_masks(*shape, outside=OUTSIDE[spec.masks])
        if spec.masks == "fixed_disjoint":  # a buffer is checkpointed but not learned
            self.register_buffer("beta", beta)
        else:
            self.beta = nn.Parameter(beta)

    def masks_of(self, batch: Batch) -> Tensor:
        """Returns ReLU(beta) of each triplet's condition, [B, D]."""
        assert batch.condition is not None
        masks_BD: Tensor = self.beta.relu()[batch.condition]
        return masks_BD

    def distances(self, z_B3D: Tensor, batch: Batch) -> Tensor:
        return masked_distances(z_B3D, self.masks_of(batch))

    def mask_size(self, batch: Batch) -> Tensor | None:
        return None if self.spec.masks == "fixed_disjoint" else mask_size(self.masks_of(batch))
