"""CSN: triplets, each compared under the mask of its condition."""

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.triplet import mask_size, masked_distances
from mtcon_ray.methods.base import METHODS
from mtcon_ray.methods.triplet import TripletMethod, TripletSpec, disjoint_masks, random_masks

# Entries of a disjoint mask outside its own dimensions, as in the authors' code. Learned masks do
# not start at 0, because ReLU has no gradient there.
OUTSIDE = {"learned_disjoint": 0.1, "fixed_disjoint": 0.0}


@METHODS.register("csn")
class CSN(TripletMethod):
    """Conditional similarity network, Veit et al. 2017, arXiv:1603.07810, with a mask per task."""

    class Spec(TripletSpec):
        """A triplet loss with a mask per task, on the tasks with classes."""

        name: Literal["csn"] = "csn"
        masks: Literal["learned", "learned_disjoint", "fixed_disjoint"] = Field(
            "learned",
            description="learned from normal values of mean 0.9 and deviation 0.7 (learned), or "
            "from 1 on disjoint dimensions and 0.1 elsewhere (learned_disjoint), or fixed at 1 on "
            "disjoint dimensions and 0 elsewhere (fixed_disjoint)",
        )

        def check(self, problem: Problem) -> None:
            super().check(problem)
            num_masks = len(problem.of_kind("classes"))
            if self.masks != "learned" and problem.head_dim < num_masks:
                raise ValueError(
                    f"model.head_dim must give each of {num_masks} disjoint masks a dimension, "
                    f"got {problem.head_dim}"
                )

    spec: Spec

    def __init__(self, spec: Spec, problem: Problem) -> None:
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
