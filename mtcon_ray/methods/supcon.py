"""SupCon on one task: positives have the same label. A single head with a fixed temperature."""

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.positives import EqualLabel, Relation
from mtcon_ray.methods.base import ContrastiveMethod
from mtcon_ray.spec.methods.supervised import SupConSpec


class SupCon(ContrastiveMethod):
    """SupCon, Khosla et al. 2020, arXiv:2004.11362, eq. 2, on the labels of a task."""

    spec: SupConSpec

    def name_heads(self) -> tuple[str, ...]:
        return (self.spec.task,)

    def relation(self, head: str, batch: Batch) -> Relation:
        return EqualLabel(batch.labels[head])
