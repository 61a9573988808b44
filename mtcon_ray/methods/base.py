"""Base classes of all methods: heads on the encoder, their losses, and a weighting of the losses.

A contrastive method (`ContrastiveMethod`) makes three choices: the positives of each anchor, the
temperature, and the weighting of the heads' losses.

A method gets the rows of the whole global batch. Ranks, devices and optimizers belong to the
training loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from mtcon_ray.base import metrics
from mtcon_ray.base.metrics import Kind
from mtcon_ray.base.registry import Spec, Table
from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples, items
from mtcon_ray.errors import nearest
from mtcon_ray.losses.contrastive import Range, contrast_by_head
from mtcon_ray.losses.numeric import Compared
from mtcon_ray.losses.positives import OwnView, Relation
from mtcon_ray.losses.weighting import NO_RANGES, FixedWeights, Weighting
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.heads import ProjectionHead
from mtcon_ray.models.network import Network


class MethodSpec(Spec):
    """Fields common to the sections of all methods. Each method adds further fields.

    If `trains` is False, there are no steps and a single epoch, in which the probes are fitted.
    `images_per_example` is the number of images of a training example: 3 for triplets. If
    `uses_labels` is False, the method can be trained without tasks.
    """

    trains: ClassVar[bool] = True
    uses_labels: ClassVar[bool] = True
    images_per_example: ClassVar[int] = 1

    name: str

    def check(self, problem: Problem) -> None:
        """Raises ValueError if the method cannot be trained on this problem.

        Called before labels are read, so `problem.sizes` may be empty.
        """

    def warnings(self) -> dict[str, str]:
        """Returns warnings of allowed but risky values, by field name. `plan` shows them."""
        return {}

    @property
    def has_batch_norm(self) -> bool:
        """True if the heads of the method have batch norm."""
        return False

    def num_examples(self, num_items: int) -> int:
        """Returns the number of training examples per epoch for `num_items` training items."""
        return num_items

    def rows_per_example(self, num_views: int) -> int:
        """Returns the rows of an example in a step: views of its item, or one view per image."""
        return num_views if self.images_per_example == 1 else self.images_per_example


class MethodOutput(NamedTuple):
    """Result of a forward pass of a method. Only the losses have a gradient.

    `losses`: scalar losses by name, usually the name of the head.
    `compared`: per head, the rows compared by its loss. The cosines are computed from them.
    `ranges`: per head, (floor, ceiling) of the loss, if the weighting needs them.
    `details`: returns further scalars to be tracked, by metric name (see `gauges`).
    """

    losses: dict[str, Tensor]
    compared: Mapping[str, Compared] = MappingProxyType({})
    ranges: Mapping[str, Range] = NO_RANGES
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


class Method(nn.Module, ABC):
    """Base of all methods. A subclass is registered in METHODS and has a nested `Spec`.

    Parameters are learned together with the network, without weight decay. Buffers are
    checkpointed. `weighting` holds the parameters learned per task.

    `momentum`: if not None, training keeps a momentum encoder (teacher). After each step its
    parameters become momentum * teacher + (1 - momentum) * network. Rows of every head are then
    [query | key] along the last axis. Keys come from the teacher and have no gradient.
    `progress`: finished share of training, in [0, 1), set before each step.
    """

    Spec: ClassVar[type[MethodSpec]]
    weighting: Weighting
    momentum: float | None = None
    progress: float = 0.0

    def __init__(self, spec: MethodSpec, problem: Problem) -> None:
        super().__init__()
        self.spec = spec
        self.problem = problem
        self.tasks = problem.tasks
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
        return items(dataset.table.rows("train"), self.problem.num_views)

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

    def after_step(self, output: MethodOutput) -> None:
        """Runs after each optimizer step, with the output of its forward pass.

        Clamps the weighting. Subclasses update their queues.
        """
        self.weighting.clamp()


def check_task(task: str | None, problem: Problem, kind: Kind = "classes") -> None:
    """Raises ValueError if no task is of the kind, or if the spec's `task` is not of the kind."""
    columns = problem.of_kind(kind)
    what = {"classes": "a column of classes", "set": "a label set", "number": "a number"}[kind]
    if not columns:
        raise ValueError(f"data.tasks must have {what}, got {dict(problem.kinds)}")
    if task is not None and task not in columns:
        raise ValueError(
            f"task must be {what} in data.tasks {list(columns)}, got "
            f"{task!r}{nearest(task, columns)}"
        )


class SeveralViewsSpec(MethodSpec):
    """Base of the sections of all methods that compare views of an item."""

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if problem.num_views < 2:
            raise ValueError(
                f"views.num_views must be at least 2 for a method that compares views, "
                f"got {problem.num_views}"
            )


# Below 1e-6 a quotient of a similarity in float32 has an error of more than 0.1.
Temperature = Annotated[float, Field(ge=1e-6, le=100)]


class ContrastiveSpec(SeveralViewsSpec):
    """Fields common to the contrastive methods."""

    temperature: Temperature = Field(0.1, description="divides every similarity")


class SupervisedSpec(ContrastiveSpec):
    """Fields common to the contrastive methods with positives by label."""

    missing: Literal["skip", "self_only"] = Field(
        "skip",
        description="positives of an item without label: none, or its own other views",
    )


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
        losses: dict[str, Tensor] = {}
        ranges: dict[str, Range] = {}
        # Heads with the same kind of positives and the same width share one computation: small
        # batches are dominated by the launch overhead of their operations.
        for heads, found in contrast_by_head(z_by_head, relations, temperatures):
            losses |= zip(heads, found.loss.unbind(), strict=True)
            if self.weighting.needs_ranges:
                floor_H, ceiling_H = found.range()
                ranges |= zip(heads, map(Range, floor_H.unbind(), ceiling_H.unbind()), strict=True)
        return MethodOutput(
            {head: losses[head] for head in z_by_head},
            {head: compare(z, relation=relations[head]) for head, z in z_by_head.items()},
            ranges,
        )


# Filled by the decorators in the modules of this folder, which `methods/__init__.py` imports.
METHODS: Table[Method] = Table("method")


def check_labels(method: MethodSpec, tasks: Sequence[str]) -> None:
    """Raises ValueError if there are no tasks and the method needs labels."""
    if not tasks and method.uses_labels:
        free = [name for name in METHODS if not METHODS[name].Spec.uses_labels]
        raise ValueError(
            f"data.tasks must name a label for method {method.name}, got none; methods that need "
            f"no labels are {', '.join(free)}"
        )


def one_epoch_if_untrained(raw: Any) -> Any:
    """Returns a spec's plain data, with epochs set to 1 if its method does not train.

    The probes are fitted in this epoch. Epochs in the data are replaced, because the base of a
    comparison may give them.
    """
    method = raw.get("method") if isinstance(raw, dict) else None
    name = method.get("name") if isinstance(method, dict) else getattr(method, "name", method)
    if not isinstance(name, str) or name not in METHODS or METHODS[name].Spec.trains:
        return raw
    one = {"train": {"epochs": 1, "warmup_epochs": 0}, "evaluate": {"every": 1}}
    given = {section: raw.get(section, {}) for section in one}
    return raw | {k: {**v, **one[k]} for k, v in given.items() if isinstance(v, dict)}
