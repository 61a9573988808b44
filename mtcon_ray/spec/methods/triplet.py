"""Sections of the methods that train on triplets, CSN and SCE-Net."""

from typing import ClassVar

from pydantic import Field

from mtcon_ray.spec.methods.base import METHODS, MethodSpec, check_task
from mtcon_ray.spec.problem import Problem


class TripletSpec(MethodSpec):
    """Fields common to CSN and SCE-Net. An image has one view, and views.num_views is not used."""

    images_per_example: ClassVar[int] = 3

    num_triplets: int = Field(
        10_000, ge=1, le=10_000_000, description="triplets of an epoch, drawn once by label"
    )
    margin: float = Field(
        0.2, gt=0, le=100, description="the negative must be farther than the positive by this"
    )
    embedding_penalty: float = Field(
        5e-3, ge=0, le=100, description="weight of the root mean square length of embeddings"
    )
    mask_penalty: float = Field(
        5e-4, ge=0, le=100, description="weight of the mean sum of a learned mask"
    )

    @property
    def own_heads(self) -> str:
        return "embedding"

    def check(self, problem: Problem) -> None:
        super().check(problem)
        check_task(None, problem)
        if problem.batch_size > self.num_triplets:
            raise ValueError(
                f"num_triplets must be at least train.batch_size, got {self.num_triplets} and "
                f"{problem.batch_size}"
            )

    def num_examples(self, num_items: int) -> int:
        return self.num_triplets


@METHODS.declare("csn", "mtcon_ray.methods.triplet:CSN")
class CSNSpec(TripletSpec):
    """A triplet loss with a mask per task, on the tasks with classes."""


@METHODS.declare("scenet", "mtcon_ray.methods.triplet:SCENet")
class SCENetSpec(TripletSpec):
    """A triplet loss under learned concepts: masks that belong to no task."""

    num_concepts: int | None = Field(
        None, ge=1, le=1024, description="masks (null: the number of tasks with classes)"
    )
