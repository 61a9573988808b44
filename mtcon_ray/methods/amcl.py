"""AMCL: several projection heads, and a learned temperature for every pair of embeddings.

Wang et al. 2023, arXiv:2310.05615. The five forms extend SimCLR, MoCo, SimSiam, Barlow Twins and
plain InfoNCE.
"""

from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.learned_temperature import Adaptive
from mtcon_ray.methods.adaptive import adapt_heads, seeded_temperature_net
from mtcon_ray.methods.base import MethodOutput
from mtcon_ray.methods.self_supervised import KeyQueues, SelfSupervisedMethod
from mtcon_ray.models.batch_norm_heads import BatchNormProjector, SimSiamHead
from mtcon_ray.spec.methods.adaptive import AMCLSpec
from mtcon_ray.spec.problem import Problem


class AMCL(SelfSupervisedMethod):
    """Adaptive multi-head contrastive learning. All heads share a temperature network.

    The objective is the sum of the heads' losses (see `losses.amcl`).
    """

    Spec = AMCLSpec

    spec: AMCLSpec

    def __init__(self, spec: AMCLSpec, problem: Problem) -> None:
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
