"""SimSiam: predicts the projection of another view, without negatives or momentum encoder."""

from collections.abc import Mapping
from typing import Literal

from torch import Tensor

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.self_supervised import simsiam
from mtcon_ray.methods.base import METHODS, Method, MethodOutput, compare
from mtcon_ray.methods.self_supervised import (
    PredictorSpec,
    attach,
    check_several_items,
    number_heads,
)
from mtcon_ray.models.batch_norm_heads import SimSiamHead
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network


@METHODS.register("simsiam")
class SimSiam(Method):
    """SimSiam, Chen and He 2021, arXiv:2011.10566, eq. 4, in each head."""

    class Spec(PredictorSpec):
        """A projector and a predictor per head. Task labels are used by the probes alone."""

        name: Literal["simsiam"] = "simsiam"

        def check(self, problem: Problem) -> None:
            super().check(problem)
            check_several_items(problem)

    spec: Spec

    def name_heads(self) -> tuple[str, ...]:
        return number_heads(self.spec.num_heads)

    def make_network(self, encoder: Encoder) -> Network:
        dims = self.spec.model_dump(include={"dim", "hidden", "predictor_hidden"})
        return attach(encoder, self.heads, lambda width: SimSiamHead(width, **dims))

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns minus the mean cosine per head; z_by_head[head] is [prediction | projection]."""
        losses, compared = {}, {}
        for head, z_BVD in z_by_head.items():
            prediction_BVD, projection_BVD = z_BVD.chunk(2, dim=2)
            compared[head] = compare(prediction_BVD, projection_BVD)
            losses[head] = simsiam(prediction_BVD, projection_BVD)
        return MethodOutput(losses, compared)
