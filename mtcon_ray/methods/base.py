"""What a method is: heads on the encoder, a loss for each, and a weighting of these.

A contrastive method (`ContrastiveMethod`) is three choices and nothing else: who is a partner
of whom, at which temperature, and how the heads are weighed against each other.

A method never sees ranks, devices or optimizers: it gets every head's rows of the whole batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from mtcon_ray import metrics
from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples, items
from mtcon_ray.losses.contrastive import Range, contrast_by_head
from mtcon_ray.losses.cosines import Compared
from mtcon_ray.losses.relations import OwnView, Relation
from mtcon_ray.losses.weighting import EqualWeights, Weighting
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network, projections
from mtcon_ray.registry import Spec, Table


class MethodSpec(Spec):
    """What every method's section has; each method adds its own fields.

    Where `trains` is False there is no step, and one epoch: that of the probes.
    """

    trains: ClassVar[bool] = True
    images_per_example: ClassVar[int] = 1

    name: str

    def check(self, problem: Problem) -> None:
        """Raises ValueError if the method cannot be trained on this; sizes are not known yet."""

    def warnings(self) -> dict[str, str]:
        """Field of the section to a warning of its value, which `plan` shows: allowed but risky."""
        return {}

    @property
    def has_batch_norm(self) -> bool:
        """Whether what the method puts on the encoder has batch norm."""
        return False

    def num_examples(self, num_items: int) -> int:
        """Training examples in an epoch, from the number of training items."""
        return num_items

    def rows_per_example(self, num_views: int) -> int:
        """Rows that an example has in a step: by default one for each view of its item."""
        return num_views


class Method(nn.Module, ABC):
    """Base of all methods. Registered in METHODS with a nested `Spec`.

    Parameters are learned beside the network's and never decayed; buffers are checkpointed.
    `weighting` holds what is learned per task. `momentum` asks for a slowly following copy of
    the network (a teacher), which keeps this share of itself in each step: every head's rows
    are then [query | key], twice as wide, the keys from the copy and without gradient.

    `progress` is the share of training that is done, in [0, 1), set before each step. `ranges`
    tells a weighting that needs it between what each loss of the last forward may lie. `phases` are
    the shares at which the objective becomes another one, if it does.
    """

    Spec: ClassVar[type[MethodSpec]]
    weighting: Weighting
    momentum: float | None = None
    progress: float = 0.0
    phases: tuple[float, ...] = ()

    def __init__(self, spec: MethodSpec, problem: Problem) -> None:
        super().__init__()
        self.spec = spec
        self.problem = problem
        self.tasks = problem.tasks
        self.heads = self.name_heads()
        self.ranges: dict[str, Range] = {}
        self._compared: dict[str, Compared] = {}
        self.weighting = self.make_weighting()

    def name_heads(self) -> tuple[str, ...]:
        """One head per task, unless the method says otherwise."""
        return self.tasks

    def make_weighting(self) -> Weighting:
        """Equal weights, unless the method says otherwise."""
        return EqualWeights()

    def make_network(self, encoder: Encoder) -> Network:
        """The encoder with a projection head per name, unless the method says otherwise."""
        problem = self.problem
        return projections(self.heads, dim=problem.head_dim, hidden=problem.head_hidden)(encoder)

    def examples(self, dataset: Dataset, seed: int) -> Examples:
        """What an epoch is made of: by default each training item, seen in several views."""
        return items(dataset.table.rows("train"), self.problem.num_views)

    def lr_group(self, parameter: str) -> int:
        """Which of `lr_scales` the network's parameter of this name follows; fixed for a run."""
        return 0

    def lr_scales(self) -> tuple[float, ...]:
        """Each group's share of the learning rate in this step; the first is the method's too."""
        return (1.0,)

    @abstractmethod
    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Each loss, a scalar; z_by_head[head] is z_BVD, the rows of the whole batch."""

    def after_step(self) -> None:
        """Called after each optimizer step: bounds, queues."""
        self.weighting.clamp()

    def compare(
        self,
        head: str,
        z_BVD: Tensor,
        other_BVD: Tensor | None = None,
        relation: Relation | None = None,
    ) -> None:
        """Keeps a head's rows, whose cosines `gauges` gives; called in `forward`.

        Positives are by default the other views of an image. `other_BVD`: the keys of queries.
        """
        other_BVD = z_BVD if other_BVD is None else other_BVD
        self._compared[head] = Compared(z_BVD.detach(), other_BVD.detach(), relation or OwnView())

    def gauges(self) -> dict[str, Tensor]:
        """Further scalars of the last forward to be tracked, by metric name, detached.

        Asked for at the end of an epoch, so that steps do not pay for them. A value that is not
        finite is not tracked.
        """
        values = {}
        for head, compared in self._compared.items():
            suffix = metrics.slug(head) if len(self._compared) > 1 else None
            cosines = compared.cosines()
            values[metrics.cosine_positive(suffix)] = cosines.positive
            values[metrics.cosine_random(suffix)] = cosines.random
        return values


class ContrastiveSpec(MethodSpec):
    """What every contrastive method's section has."""

    temperature: float = Field(0.1, gt=0, le=100, description="divides every similarity")

    def check(self, problem: Problem) -> None:
        if problem.num_views < 2:
            raise ValueError(
                f"views.num_views must be at least 2 for a contrastive method, "
                f"got {problem.num_views}"
            )


class ContrastiveMethod(Method):
    """A method made of a pair relation, a temperature and a weighting (METHODS 0 to 5, 10)."""

    spec: ContrastiveSpec

    @abstractmethod
    def relation(self, head: str, batch: Batch) -> Relation:
        """Who is a partner of whom in the space of this head."""

    def temperature(self, head: str) -> float | Tensor:
        """What divides the similarities in the space of this head."""
        return self.spec.temperature

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Each head's loss in nats per anchor; z_by_head[head] is z_BVD with unit rows.

        Heads whose relations are of a kind are computed at once.
        """
        losses: dict[str, Tensor] = {}
        relations = {head: self.relation(head, batch) for head in z_by_head}
        for head, z_BVD in z_by_head.items():
            self.compare(head, z_BVD, relation=relations[head])
        for heads, found in contrast_by_head(
            z_by_head,
            relations,
            {head: self.temperature(head) for head in z_by_head},
        ):
            losses |= dict(zip(heads, found.loss.unbind(), strict=True))
            if self.weighting.needs_ranges:
                floor_H, ceiling_H = found.range()
                ranges = map(Range, floor_H.unbind(), ceiling_H.unbind())
                self.ranges |= dict(zip(heads, ranges, strict=True))
        return {head: losses[head] for head in z_by_head}


METHODS: Table[Method] = Table("method")


def one_epoch_if_untrained(raw: Any) -> Any:
    """Returns a spec's plain data with one epoch, that of the probes, if its method trains none.

    Other epochs in it, such as those of a comparison's base, are replaced.
    """
    method = raw.get("method") if isinstance(raw, dict) else None
    name = method.get("name") if isinstance(method, dict) else method
    if not isinstance(name, str) or name not in METHODS or METHODS[name].Spec.trains:
        return raw
    one = {"train": {"epochs": 1, "warmup_epochs": 0}, "evaluate": {"every": 1}}
    given = {section: raw.get(section, {}) for section in one}
    return raw | {k: {**v, **one[k]} for k, v in given.items() if isinstance(v, dict)}
