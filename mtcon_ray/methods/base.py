"""Base classes of all methods: heads on the encoder, their losses, and a weighting of the losses.

A contrastive method (`ContrastiveMethod`) makes three choices: the positives of each anchor, the
temperature, and the weighting of the heads' losses.

A method gets the rows of the whole global batch. Ranks, devices and optimizers belong to the
training loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor, nn

from mtcon_ray.base import metrics
from mtcon_ray.base.plugins import check_shape
from mtcon_ray.base.registry import Configured, Table
from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples
from mtcon_ray.errors import SpecError
from mtcon_ray.losses.contrastive import contrast_by_head
from mtcon_ray.losses.numeric import Compared
from mtcon_ray.losses.positives import OwnView, Relation
from mtcon_ray.losses.weighting import FixedWeights, Weighting
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network, ProjectionHead
from mtcon_ray.spec.methods.base import METHODS as SPECS, ContrastiveSpec, MethodSpec
from mtcon_ray.spec.problem import Problem


class MethodOutput(NamedTuple):
    """Result of a forward pass of a method. Only the losses have a gradient.

    `losses`: scalar losses by name, usually the name of the head.
    `compared`: per head, the rows compared by its loss. The cosines are computed from them.
    `details`: a function for further scalars to be tracked, by metric name (see `gauges`).
    """

    losses: dict[str, Tensor]
    compared: Mapping[str, Compared] = MappingProxyType({})
    details: Callable[[], dict[str, Tensor]] = dict

    def gauges(self) -> dict[str, Tensor]:
        """Returns each head's cosines and the details, scalars to be tracked, by metric name.

        Called once per epoch and not in each step, to save time. Values that are not finite are
        not tracked.
        """
        values, names = {}, metrics.slugs(self.compared)
        for head, compared in self.compared.items():
            suffix = names[head] if len(names) > 1 else None
            positive, random = compared.cosines()
            values[metrics.cosine("positive", suffix)] = positive
            values[metrics.cosine("random", suffix)] = random
        return values | self.details()


def compare(
    z_BVD: Tensor, other_BVD: Tensor | None = None, relation: Relation | None = None
) -> Compared:
    """Returns a head's rows, detached, for `MethodOutput.compared`.

    `other_BVD` holds the keys if z_BVD holds queries, by default z_BVD itself. `relation` defines
    the positives, by default the other views of an item.
    """
    other_BVD = z_BVD if other_BVD is None else other_BVD
    return Compared(z_BVD.detach(), other_BVD.detach(), relation or OwnView())


class Method(Configured, nn.Module, ABC):
    """Base of all methods. `Spec` is the section, which names the class in METHODS.

    A plugin registers its class in METHODS and nests its `Spec`. The suffixes of shapes are in
    `data/batch.py`.

    Parameters are learned together with the network, without weight decay. Buffers are
    checkpointed. `weighting` holds the parameters learned per task.

    `momentum`: if not None, training keeps a momentum encoder (teacher). After each step its
    parameters become momentum * teacher + (1 - momentum) * network. Rows of every head are then
    [query | key] along the last axis. Keys come from the teacher and have no gradient.
    `progress`: finished share of training, in [0, 1), set before each step.
    """

    momentum: float | None = None
    progress: float = 0.0

    def __init__(self, spec: MethodSpec, problem: Problem) -> None:
        super().__init__()
        self.spec, self.problem, self.tasks = spec, problem, problem.tasks
        self.heads = self.name_heads()
        self.weighting = self.make_weighting()

    def name_heads(self) -> tuple[str, ...]:
        """Returns the names of the heads, by default the names of the tasks."""
        return self.tasks

    def make_weighting(self) -> Weighting:
        """Returns the weighting of the losses, by default their sum."""
        return FixedWeights()

    def make_network(self, encoder: Encoder) -> Network:
        """Returns the encoder with a head for each name."""
        return Network(encoder, {head: self.make_head(head, encoder.width) for head in self.heads})

    def make_head(self, head: str, width: int) -> nn.Module:
        """Returns a head on features of this width, by default a projection head."""
        return ProjectionHead(width, dim=self.problem.head_dim, hidden=self.problem.head_hidden)

    def examples(self, dataset: Dataset, seed: int) -> Examples:
        """Returns the examples of an epoch, by default each training item in `num_views` views."""
        return Examples(dataset.table.rows("train")[:, None], self.problem.num_views)

    def lr_group(self, parameter: str) -> int:
        """Returns the index in `lr_scales` for a network parameter. The index never changes."""
        return 0

    def lr_scales(self) -> tuple[float, ...]:
        """Returns each group's factor on the learning rate in this step.

        The method's own parameters belong to group 0.
        """
        return (1.0,)

    @abstractmethod
    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns the losses. z_by_head[head] is z_BVD, the rows of the whole global batch."""

    def check(self, output: object) -> MethodOutput:
        """Returns what `forward` returned. Raises SpecError unless its losses can be trained."""
        what = f"method {self.spec.name!r}"
        if not isinstance(output, MethodOutput):
            kind = type(output).__name__
            raise SpecError(f"{what}: forward must return a MethodOutput, got {kind}")
        for name, loss in output.losses.items():
            check_shape(f"{what}: the loss {name!r}", loss, (), "average it over the batch")
        if not any(loss.requires_grad for loss in output.losses.values()):
            raise SpecError(
                f"{what}: a loss must have a gradient, got {list(output.losses)} without; compute "
                "it from z_by_head without detach, item and no_grad"
            )
        return output

    def after_step(self, output: MethodOutput) -> None:
        """Runs after each optimizer step, with the output of its forward pass.

        Clamps the weighting. Subclasses update their queues.
        """
        self.weighting.clamp()


class ContrastiveMethod(Method):
    """A method given by its positives, temperature and weighting (see `losses.contrastive`).

    Khosla et al. 2020, arXiv:2004.11362, eq. 2, with weighted positives.
    """

    spec: ContrastiveSpec

    @abstractmethod
    def relation(self, head: str, batch: Batch) -> Relation:
        """Returns the positives of every anchor in the space of this head."""

    def temperature(self, head: str) -> float | Tensor:
        """Returns the temperature of this head: a number, or a scalar tensor with gradient."""
        return self.spec.temperature

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns each head's loss in nats per anchor. z_by_head[head] is z_BVD with unit rows."""
        relations = {head: self.relation(head, batch) for head in z_by_head}
        temperatures = {head: self.temperature(head) for head in z_by_head}
        losses = dict[str, Tensor]()
        # Heads with the same kind of positives and the same width share one computation: small
        # batches are dominated by the launch overhead of their operations.
        for heads, loss_H in contrast_by_head(z_by_head, relations, temperatures):
            losses |= zip(heads, loss_H.unbind(), strict=True)
        return MethodOutput(
            {head: losses[head] for head in z_by_head},
            {head: compare(z, relation=relations[head]) for head, z in z_by_head.items()},
        )


# The table of the sections, typed by what METHODS["name"] returns: the class of a method.
METHODS: Table[Method] = SPECS
