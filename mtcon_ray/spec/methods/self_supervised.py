"""Sections of the methods that compare views of an image, from SimCLR to AMCL, CAN and LGP."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from mtcon_ray.base.registry import BelowOne, Inside, Share, UpTo64, Weight, Width
from mtcon_ray.spec.methods.base import METHODS, ContrastiveSpec, SeveralViewsSpec, Temperature
from mtcon_ray.spec.problem import Problem

TAU_MIN, TAU_MAX = 1e-5, 2.0  # the paper's bounds
TopK = Annotated[int, Field(ge=1, le=1_000_000)]
Form = Literal["simclr", "moco", "simsiam", "barlow", "infonce"]
DECODER_HEADS = 4
# With one negative per anchor AMCL collapses.
ONE_NEGATIVE = {
    "top_k": "method.top_k must be well above 1 for AMCL to tell images apart, got 1; with one "
    "negative per anchor the heads collapse (cosine/random reaches cosine/positive); set it to "
    "100, as released"
}


class SelfSupervisedSpec(SeveralViewsSpec):
    """Fields of methods with a loss between views of an item, in one or several heads."""

    uses_labels: ClassVar[bool] = False
    own_heads: ClassVar[str] = r"instance(-\d+)?"
    num_heads: UpTo64 = Field(1, description="projection heads, differing in their initial weights")


class QueueSpec(SelfSupervisedSpec):
    """Fields of methods with a momentum encoder (teacher) and a queue of its keys."""

    teacher_momentum: BelowOne = Field(0.99, description="MoCo: m in m * teacher + (1 - m) * net")
    queue_size: int = Field(
        4096, ge=2, le=10_000_000, description="MoCo: keys in a head's queue, at least a step's"
    )

    def check(self, problem: Problem) -> None:
        super().check(problem)
        keys = problem.batch_size * problem.num_views
        # Other forms of AMCL have no queue.
        if getattr(self, "form", "moco") == "moco" and self.queue_size < keys:
            raise ValueError(
                f"queue_size must be at least train.batch_size x views.num_views, the {keys} keys "
                f"of a step, got {self.queue_size}; raise it or lower train.batch_size"
            )


class ProjectorSpec(SelfSupervisedSpec):
    """Fields of methods with projectors of three layers with batch norm."""

    dim: Width = Field(2048, description="SimSiam, Barlow Twins: output width (not model.head_dim)")
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


@METHODS.declare("simclr", "mtcon_ray.methods.self_supervised:SimCLR")
class SimCLRSpec(ContrastiveSpec, SelfSupervisedSpec):
    """NT-Xent in a single head or several. Task labels are used by the probes alone.

    Several heads are AMCL's architecture with a fixed temperature.
    """


@METHODS.declare("moco", "mtcon_ray.methods.self_supervised:MoCo")
class MoCoSpec(QueueSpec, ContrastiveSpec):
    """Momentum contrast. Task labels are used by the probes alone."""


@METHODS.declare("simsiam", "mtcon_ray.methods.self_supervised:SimSiam")
class SimSiamSpec(PredictorSpec):
    """A projector and a predictor per head. Task labels are used by the probes alone."""


@METHODS.declare("barlow", "mtcon_ray.methods.self_supervised:BarlowTwins")
class BarlowTwinsSpec(RedundancySpec):
    """Barlow Twins with a projector per head. Task labels are used by the probes alone."""


def check_bounds(tau_min: float, tau_max: float) -> None:
    """Raises ValueError unless AMCL's lowest temperature is below its highest."""
    if tau_min >= tau_max:
        raise ValueError(f"tau_min must be below tau_max, got {tau_min} and {tau_max}")


class AdaptiveSpec(SelfSupervisedSpec):
    """Fields of methods with AMCL's temperatures."""

    tau_min: Temperature = Field(
        TAU_MIN,
        description="lowest temperature of AMCL. Most positives reach it and then have losses of "
        "up to 1 / tau_min, so 0.05, or train.max_grad_norm 1, is safer than the paper's 1e-5",
    )
    tau_max: Temperature = Field(TAU_MAX, description="highest temperature of AMCL")
    top_k: TopK = Field(
        1,
        description="number of AMCL's hardest negatives per anchor in the loss, at most as many as "
        "there are (1 as printed, 100 in the released code)",
    )

    def check(self, problem: Problem) -> None:
        super().check(problem)
        check_bounds(self.tau_min, self.tau_max)


@METHODS.declare("amcl", "mtcon_ray.methods.amcl:AMCL")
class AMCLSpec(AdaptiveSpec, QueueSpec, PredictorSpec, RedundancySpec):
    """Adaptive multi-head contrastive learning. Task labels are used by the probes alone.

    A field with a description that begins with a system's name is used in this form only. With
    the paper's tau_min, 1e-5, losses reach the order of 1e5, so set `train.max_grad_norm` (the
    authors' code has 1).
    """

    form: Form = Field("simclr", description="system whose loss gets learned temperatures")
    num_heads: UpTo64 = Field(3, description="projection heads, differing in their initial weights")
    beta: Weight | None = Field(
        None,
        description="weight of the regulariser of temperatures (null: as released, 1e-4, for "
        "barlow 1e-6). If beta is below the similarity of a pair, the pair's best temperature "
        "is a bound. A beta of 1 is safer",
    )
    unit_columns: bool = Field(
        False,
        description="Barlow Twins: scale columns to length 1 before the temperature network. "
        "The released code does not, and long columns drive every temperature to a bound",
    )

    @property
    def has_batch_norm(self) -> bool:
        return self.form in ("simsiam", "barlow")

    def warnings(self) -> dict[str, str]:
        # The forms with batch norm have no negatives.
        return ONE_NEGATIVE if self.top_k == 1 and not self.has_batch_norm else {}


class AutoencodingSpec(AdaptiveSpec, ContrastiveSpec):
    """Fields common to the masked auto-encoding methods."""

    own_heads: ClassVar[str] = r"instance(-\d+)?|reconstruction|noise"

    mask_ratio: Inside = Field(0.5, description="share of hidden patches")
    decoder_width: int = Field(
        128, ge=16, le=4096, multiple_of=4 * DECODER_HEADS, description="width of the decoder"
    )
    decoder_depth: int = Field(2, ge=1, le=32, description="transformer blocks of the decoder")
    contrast: Literal["infonce", "amcl"] = Field(
        "infonce", description="same temperature for all pairs (infonce), or one per pair (amcl)"
    )
    beta: Weight = Field(1e-4, description="AMCL: weight of the regulariser of temperatures")

    def warnings(self) -> dict[str, str]:
        return ONE_NEGATIVE if self.contrast == "amcl" and self.top_k == 1 else {}

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if problem.encoder != "vit":
            raise ValueError(f"model.encoder must be vit to hide patches, got {problem.encoder}")


@METHODS.declare("can", "mtcon_ray.methods.autoencoding:CAN")
class CANSpec(AutoencodingSpec):
    """Contrastive heads and a denoising masked auto-encoder."""

    noise_level: float = Field(
        0.05, gt=0, le=1, description="largest deviation of the noise on normalised pixels"
    )
    contrast_weight: Weight = Field(0.03, description="weight of the contrastive loss")
    reconstruction_weight: Weight = Field(0.67, description="weight of the error of hidden patches")
    noise_weight: Weight = Field(0.3, description="weight of the prediction error of the noise")


@METHODS.declare("lgp", "mtcon_ray.methods.autoencoding:LGP")
class LGPSpec(AutoencodingSpec):
    """A masked auto-encoder first, then contrastive heads."""

    mask_ratio: Inside = Field(0.75, description="share of hidden patches")
    masked_share: Inside = Field(0.5, description="share of the steps in phase 1, auto-encoding")
    lr_by_depth: tuple[Share, Share, Share] = Field(
        (0.1, 0.1, 1.0),
        description="share of train.lr in the contrastive phase, for each third of the blocks "
        "(the patch embedding belongs to the first third)",
    )
