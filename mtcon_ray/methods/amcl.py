"""AMCL: several projection heads, and a learned temperature for every pair of embeddings.

Wang et al. 2023, arXiv:2310.05615. The five forms extend SimCLR, MoCo, SimSiam, Barlow Twins and
plain InfoNCE.
"""

from collections.abc import Mapping
from typing import Literal

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.amcl import Form
from mtcon_ray.losses.learned_temperature import Adaptive, Regulariser
from mtcon_ray.methods.adaptive import (
    AdaptiveSpec,
    adapt_heads,
    seeded_temperature_net,
    top_k_warning,
)
from mtcon_ray.methods.base import METHODS, MethodOutput
from mtcon_ray.methods.self_supervised import (
    KeyQueues,
    PredictorSpec,
    QueueSpec,
    RedundancySpec,
    SelfSupervisedMethod,
)
from mtcon_ray.models.batch_norm_heads import BatchNormProjector, SimSiamHead


@METHODS.register("amcl")
class AMCL(SelfSupervisedMethod):
    """Adaptive multi-head contrastive learning. All heads share a temperature network.

    The objective is the sum of the heads' losses (see `losses.amcl`).
    """

    class Spec(AdaptiveSpec, QueueSpec, PredictorSpec, RedundancySpec):
        """Adaptive multi-head contrastive learning. Task labels are used by the probes alone.

        A field with a description that begins with a system's name is used in this form only. With
        the paper's tau_min, 1e-5, losses reach the order of 1e5, so set `train.max_grad_norm` (the
        authors' code has 1).
        """

        name: Literal["amcl"] = "amcl"
        form: Form = Field("simclr", description="system whose loss gets learned temperatures")
        num_heads: int = Field(
            3, ge=1, le=64, description="projection heads, alike except for their initial weights"
        )
        beta: float | None = Field(
            None,
            ge=0,
            le=1000,
            description="weight of the regulariser of temperatures (null: as released, 1e-4, for "
            "barlow 1e-6). If beta is below the similarity of a pair, the pair's best temperature "
            "is a bound. A beta of 1 is safer",
        )
        regulariser: Regulariser = Field(
            "printed",
            description="regulariser of the negatives' temperatures: "
            "beta (d'/2 log tau + 1/tau), a mean over top_k (printed), or beta (log tau + 1/tau), "
            "a sum over top_k (released)",
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
            has_negatives = self.form not in ("simsiam", "barlow")
            return top_k_warning(self.top_k, self.regulariser) if has_negatives else {}

        def check(self, problem: Problem) -> None:
            super().check(problem)
            if self.form == "moco":
                self.check_queue(problem)

    spec: Spec

    def __init__(self, spec: Spec, problem: Problem) -> None:
        super().__init__(spec, problem)
        # Barlow Twins compares columns. They are vectors over the items of a batch.
        width = {"barlow": problem.batch_size, "simsiam": spec.dim}.get(spec.form, problem.head_dim)
        self.temperature_net = seeded_temperature_net(width, problem.seed)
        default_beta = 1e-6 if spec.form == "barlow" else 1e-4
        beta = default_beta if spec.beta is None else spec.beta
        self.adaptive = Adaptive(
            self._phi, beta, spec.tau_min, spec.tau_max, spec.top_k, spec.regulariser
        )
        self.queues: KeyQueues | None = None
        if spec.form == "moco":
            self.momentum = spec.teacher_momentum
            self.queues = KeyQueues(len(self.heads), spec.queue_size, width, seed=problem.seed)

    def make_head(self, head: str, width: int) -> nn.Module:
        dims = {"dim": self.spec.dim, "hidden": self.spec.hidden}
        match self.spec.form:
            case "simsiam":
                return SimSiamHead(width, **dims, predictor_hidden=self.spec.predictor_hidden)
            case "barlow":
                return BatchNormProjector(width, **dims)
        return super().make_head(head, width)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        return adapt_heads(
            z_by_head,
            self.adaptive,
            form=self.spec.form,
            queue_HKD=None if self.queues is None else self.queues.rows,
            off_diagonal=self.spec.off_diagonal,
        )

    def after_step(self, output: MethodOutput) -> None:
        """Appends the step's keys to the queues.

        Not done in `forward`: a query would find its own key among the negatives.
        """
        super().after_step(output)
        if self.queues is not None:
            self.queues.push(output.compared)

    def _phi(self, x: Tensor) -> Tensor:
        if self.spec.form == "barlow" and self.spec.unit_columns:
            x = F.normalize(x, dim=-1)
        phi: Tensor = self.temperature_net(x)
        return phi
