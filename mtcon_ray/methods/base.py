"""What a method is: for each head a pair relation, a temperature, and a weighting of the heads.

A method never sees ranks, devices or optimizers. It names its heads, and turns the unit rows
of each head and the batch's labels into one loss per task.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.contrastive import contrastive
from mtcon_ray.losses.relations import Relation
from mtcon_ray.losses.weighting import EqualWeights, Weighting
from mtcon_ray.registry import Spec, Table


class MethodSpec(Spec):
    """What every method's section has; each method adds its own fields."""

    name: str
    temperature: float = Field(0.1, gt=0, le=100, description="divides every similarity")

    def check_tasks(self, tasks: tuple[str, ...]) -> None:
        """Raises ValueError if the method cannot train on these tasks."""


class Method(nn.Module, ABC):
    """Base of all methods. Registered in METHODS with a nested `Spec`.

    `heads` names the projection heads, in order; `weighting` holds what is learned per task.
    """

    Spec: ClassVar[type[MethodSpec]]
    weighting: Weighting

    def __init__(self, spec: MethodSpec, tasks: tuple[str, ...]) -> None:
        super().__init__()
        self.spec = spec
        self.tasks = tasks
        self.heads = self.name_heads()
        self.weighting = self.make_weighting()

    def name_heads(self) -> tuple[str, ...]:
        """One projection head per task, unless the method says otherwise."""
        return self.tasks

    def make_weighting(self) -> Weighting:
        """Equal weights, unless the method says otherwise."""
        return EqualWeights()

    @abstractmethod
    def relation(self, head: str, batch: Batch) -> Relation:
        """Who is a partner of whom in the space of this head."""

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Each head's loss, a scalar in nats; z_by_head[head] is z_BVD with unit rows."""
        return {
            head: contrastive(z_BVD, self.relation(head, batch), temperature=self.spec.temperature)
            for head, z_BVD in z_by_head.items()
        }


METHODS: Table[Method] = Table("method")
