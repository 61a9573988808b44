"""Sections of the methods that compare views of an image: SimCLR, MoCo, SimSiam, Barlow Twins."""

from typing import ClassVar

from pydantic import Field

from mtcon_ray.base.registry import BelowOne, UpTo64, Weight, Width
from mtcon_ray.spec.methods.base import METHODS, ContrastiveSpec, SeveralViewsSpec
from mtcon_ray.spec.problem import Problem


class SelfSupervisedSpec(SeveralViewsSpec):
    """Fields of methods with a loss between views of an item, in one or several heads."""

    uses_labels: ClassVar[bool] = False
    num_heads: UpTo64 = Field(1, description="projection heads, differing in their initial weights")


class QueueSpec(SelfSupervisedSpec):
    """Fields of methods with a momentum encoder (teacher) and a queue of its keys."""

    teacher_momentum: BelowOne = Field(
        0.99, description="MoCo: momentum m of the teacher, m * teacher + (1 - m) * net"
    )
    queue_size: int = Field(
        4096, ge=2, le=10_000_000, description="MoCo: keys in a head's queue, at least a step's"
    )

    def check_queue(self, problem: Problem) -> None:
        """Raises ValueError if the queue is shorter than the keys of a step."""
        keys = problem.batch_size * problem.num_views
        if self.queue_size < keys:
            raise ValueError(
                f"queue_size must be at least train.batch_size x views.num_views, the {keys} keys "
                f"of a step, got {self.queue_size}; raise it or lower train.batch_size"
            )


class ProjectorSpec(SelfSupervisedSpec):
    """Fields of methods with projectors of three layers with batch norm."""

    dim: Width = Field(
        2048, description="SimSiam, Barlow Twins: projector's output width (not model.head_dim)"
    )
    hidden: Width = Field(
        2048, description="SimSiam, Barlow Twins: projector's hidden width (not model.head_hidden)"
    )

    @property
    def has_batch_norm(self) -> bool:
        return True


class PredictorSpec(ProjectorSpec):
    """Fields of methods with a predictor on each projector."""

    predictor_hidden: Width = Field(512, description="SimSiam: hidden width of the predictor")


class RedundancySpec(ProjectorSpec):
    """Fields of methods with a loss on cross-correlations."""

    off_diagonal: Weight = Field(5e-3, description="Barlow Twins: lambda, weight off the diagonal")


@METHODS.declare("simclr", "mtcon_ray.methods.simclr:SimCLR")
class SimCLRSpec(ContrastiveSpec, SelfSupervisedSpec):
    """NT-Xent in a single head or several. Task labels are used by the probes alone.

    Several heads are AMCL's architecture with a fixed temperature.
    """


@METHODS.declare("moco", "mtcon_ray.methods.moco:MoCo")
class MoCoSpec(QueueSpec, ContrastiveSpec):
    """Momentum contrast. Task labels are used by the probes alone."""

    def check(self, problem: Problem) -> None:
        super().check(problem)
        self.check_queue(problem)


@METHODS.declare("simsiam", "mtcon_ray.methods.simsiam:SimSiam")
class SimSiamSpec(PredictorSpec):
    """A projector and a predictor per head. Task labels are used by the probes alone."""


@METHODS.declare("barlow", "mtcon_ray.methods.barlow:BarlowTwins")
class BarlowTwinsSpec(RedundancySpec):
    """Barlow Twins with a projector per head. Task labels are used by the probes alone."""
