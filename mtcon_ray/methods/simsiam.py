"""SimSiam: predicts the projection of another view, without negatives or momentum encoder."""

from collections.abc import Mapping

from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.self_supervised import simsiam
from mtcon_ray.methods.base import MethodOutput, compare
from mtcon_ray.methods.self_supervised import SelfSupervisedMethod
from mtcon_ray.models.heads import SimSiamHead


class SimSiam(SelfSupervisedMethod):
    """SimSiam, Chen and He 2021, arXiv:2011.10566, eq. 4, in each head."""

    def make_head(self, head: str, width: int) -> SimSiamHead:
        dims = self.spec.model_dump(include={"dim", "hidden", "predictor_hidden"})
        return SimSiamHead(width, **dims)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns minus the mean cosine per head. z_by_head[head] is [prediction | projection]."""
        losses, compared = {}, {}
        for head, z_BVD in z_by_head.items():
            prediction_BVD, projection_BVD = z_BVD.chunk(2, dim=2)
            compared[head] = compare(prediction_BVD, projection_BVD)
            losses[head] = simsiam(prediction_BVD, projection_BVD)
        return MethodOutput(losses, compared)
