"""Sections of the methods with labels, and of the baseline without training."""

from typing import ClassVar, Literal

from pydantic import Field

from mtcon_ray.base.registry import Share
from mtcon_ray.errors import nearest
from mtcon_ray.spec.methods import base
from mtcon_ray.spec.problem import Problem


@base.METHODS.declare("supcon", "mtcon_ray.methods.supcon:SupCon")
class SupConSpec(base.ContrastiveSpec):
    """A single supervised contrastive head. The other tasks are only probed."""

    task: str = Field(description="task in data.tasks with the labels to train on")

    def check(self, problem: Problem) -> None:
        super().check(problem)
        base.check_task(self.task, problem)


@base.METHODS.declare("mtcon", "mtcon_ray.methods.mtcon:MTCon")
class MTConSpec(base.ContrastiveSpec):
    """A contrastive head per task, supervised by its classes or label sets."""

    weighting: Literal["learned", "equal", "temperature"] = Field(
        "learned",
        description="weights of the tasks: 1/sigma^2, as MTCon (learned), or all equal, as MTCon-s "
        "and CCN (equal). With temperature, sigma^2 divides the logits instead. log sigma^2 is "
        "learned at train.lr without weight decay and clamped to ±6",
    )
    normalise_weights: bool = Field(False, description="scale learned weights to mean 1")
    threshold: Share = Field(0.3, description="label sets: lowest Jaccard overlap of positives")
    temperature_by_task: dict[str, base.Temperature] = Field(
        {}, description="temperatures of single tasks (default: `temperature`)"
    )

    def check(self, problem: Problem) -> None:
        super().check(problem)
        for task in self.temperature_by_task:
            if task not in problem.tasks:
                raise ValueError(
                    f"temperature_by_task must name tasks of data.tasks {list(problem.tasks)}, "
                    f"got {task!r}{nearest(task, problem.tasks)}"
                )


@base.METHODS.declare("multisupcon", "mtcon_ray.methods.multisupcon:MultiSupCon")
class MultiSupConSpec(base.ContrastiveSpec):
    """A single head for a label set. The other tasks are only probed."""

    task: str | None = Field(None, description="task with the label sets (null: the only one)")
    sets_from: Literal["task", "classes"] = Field(
        "task",
        description="label set of an item: its set in the field task (task), or its classes in "
        "all tasks of classes (classes)",
    )
    threshold: Share = Field(0.3, description="lowest Jaccard overlap of positives (0: all items)")

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if self.sets_from == "classes":
            if self.task is not None:
                raise ValueError(f"task must be null with sets_from classes, got {self.task!r}")
            base.check_task(None, problem)
            base.check_heads(problem, "classes")
            return
        base.check_task(self.task, problem, "set")
        sets = problem.of_kind("set")
        if self.task is None and len(sets) > 1:
            raise ValueError(f"task must name one of the label sets {list(sets)}, got none")


@base.METHODS.declare("xent", "mtcon_ray.methods.xent:XEnt")
class XEntSpec(base.MethodSpec):
    """Classifiers on the shared encoder, discarded after training."""

    task: str | None = Field(None, description="task to classify (null: every task with classes)")
    weighting: Literal["none", "kendall"] = Field(
        "none",
        description="plain sum over tasks (none), or exp(-s) CE + s/2 with s learned at "
        "train.lr without weight decay and clamped to ±6 (kendall)",
    )

    head: Literal["linear", "hidden"] = Field(
        "linear",
        description="a classifier on the features (linear), or on an embedding as wide as a "
        "projection head's output, after a hidden layer (hidden)",
    )

    def check(self, problem: Problem) -> None:
        super().check(problem)
        base.check_task(self.task, problem)


@base.METHODS.declare("none", "mtcon_ray.methods.none:NoTraining")
class NoTrainingSpec(base.MethodSpec):
    """No training: the encoder is probed once, and `train.epochs` counts as 1.

    With `model.encoder: {name: handcrafted}` this is the baseline of fixed image features. With
    any other encoder it is the baseline of initial weights, random or `model.encoder.weights`.
    """

    trains: ClassVar[bool] = False
    uses_labels: ClassVar[bool] = False


class TripletSpec(base.MethodSpec):
    """Fields common to CSN and SCE-Net. An image has one view, and views.num_views is not used."""

    images_per_example: ClassVar[int] = 3
    own_heads: ClassVar[str] = "embedding"

    num_triplets: int = Field(
        10_000, ge=1, le=10_000_000, description="triplets of an epoch, drawn once by label"
    )
    margin: float = Field(0.2, gt=0, le=100, description="the negative must be farther by this")
    embedding_penalty: float = Field(
        5e-3, ge=0, le=100, description="weight of the root mean square length of embeddings"
    )
    mask_penalty: float = Field(5e-4, ge=0, le=100, description="weight of the mean sum of a mask")

    def check(self, problem: Problem) -> None:
        super().check(problem)
        base.check_task(None, problem)
        if problem.batch_size > self.num_triplets:
            raise ValueError(
                f"num_triplets must be at least train.batch_size, got {self.num_triplets} and "
                f"{problem.batch_size}"
            )

    def num_examples(self, num_items: int) -> int:
        return self.num_triplets


@base.METHODS.declare("csn", "mtcon_ray.methods.triplet:CSN")
class CSNSpec(TripletSpec):
    """A triplet loss with a mask per task, on the tasks with classes."""


@base.METHODS.declare("scenet", "mtcon_ray.methods.triplet:SCENet")
class SCENetSpec(TripletSpec):
    """A triplet loss under learned concepts: masks that belong to no task."""

    num_concepts: int | None = Field(
        None, ge=1, le=1024, description="masks (null: the number of tasks with classes)"
    )
