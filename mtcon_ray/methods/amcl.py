"""AMCL: several heads, and for every pair a temperature from one learned network (METHODS 11).

Its five forms put it on SimCLR, MoCo, SimSiam, Barlow Twins and plain InfoNCE.
"""

from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from mtcon_ray.data.batch import Batch, Problem
from mtcon_ray.losses.adaptive import TAU_MAX, TAU_MIN, Adaptive, Regulariser, TemperatureNet
from mtcon_ray.losses.amcl import Form, adapt
from mtcon_ray.methods.base import METHODS, Method
from mtcon_ray.methods.self_supervised import (
    KeyQueues,
    PredictorSpec,
    QueueSpec,
    RedundancySpec,
    attach,
    bound_shares,
    check_several_items,
    number_heads,
    top_k_warning,
)
from mtcon_ray.models.batch_norm_heads import BatchNormProjector, SimSiamHead
from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network


@METHODS.register("amcl")
class AMCL(Method):
    """Sum over heads of an adaptive loss; the temperature network is shared by all of them."""

    class Spec(QueueSpec, PredictorSpec, RedundancySpec):
        """Adaptive multi-head contrast; the tasks are only probed.

        Fields whose description begins with a system's name serve in its form alone. The paper's
        tau_min needs `train.max_grad_norm` (1 as released): losses there are of the order 1e5.
        """

        name: Literal["amcl"] = "amcl"
        form: Form = Field("simclr", description="the system whose loss gets temperatures")
        num_heads: int = Field(3, ge=1, le=64, description="heads alike in all but first weights")
        beta: float | None = Field(
            None,
            ge=0,
            le=1000,
            description="what a temperature costs; null: as released, 1e-4, for barlow 1e-6. While "
            "it is below a pair's similarity that pair's best temperature is a bound; 1 is safer",
        )
        tau_min: float = Field(
            TAU_MIN,
            gt=0,
            le=100,
            description="lowest temperature; most positives end there and count up to 1 / tau_min, "
            "so 0.05 is safer than the paper's",
        )
        tau_max: float = Field(TAU_MAX, gt=0, le=100, description="highest temperature")
        regulariser: Regulariser = Field(
            "printed",
            description="of negatives, printed: beta (d'/2 log tau + 1/tau), a mean over top_k; "
            "released: beta (log tau + 1/tau), a sum over top_k",
        )
        top_k: int | None = Field(
            None,
            ge=1,
            le=1_000_000,
            description="hardest negatives that count, all if fewer; null: 1 as printed, 100 as "
            "released",
        )
        unit_columns: bool = Field(
            False,
            description="Barlow Twins: columns have length 1 before the temperature network; as "
            "released they have not, and long ones drive every temperature to a bound",
        )

        @property
        def has_batch_norm(self) -> bool:
            return self.form in ("simsiam", "barlow")

        def warnings(self) -> dict[str, str]:
            if self.form in ("simsiam", "barlow"):  # which have no negatives
                return {}
            return top_k_warning(self.top_k, self.regulariser)

        def check(self, problem: Problem) -> None:
            super().check(problem)
            if self.tau_min >= self.tau_max:
                raise ValueError(
                    f"tau_min must be below tau_max, got {self.tau_min} and {self.tau_max}"
                )
            if self.form == "moco":
                self.check_queue(problem)
            else:
                check_several_items(problem)

    spec: Spec

    def __init__(self, spec: Spec, problem: Problem) -> None:
        super().__init__(spec, problem)
        width = {"barlow": problem.batch_size, "simsiam": spec.dim}.get(spec.form, problem.head_dim)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(problem.seed)
            self.temperature_net = TemperatureNet(width)
        default_beta = 1e-6 if spec.form == "barlow" else 1e-4
        self.adaptive = Adaptive(
            self._phi,
            default_beta if spec.beta is None else spec.beta,
            spec.tau_min,
            spec.tau_max,
            spec.top_k,
            spec.regulariser,
        )
        self.queues: KeyQueues | None = None
        if spec.form == "moco":
            self.momentum = spec.teacher_momentum
            self.queues = KeyQueues(len(self.heads), spec.queue_size, width, seed=problem.seed)
        self._temperatures: dict[str, Tensor] = {}

    def name_heads(self) -> tuple[str, ...]:
        return number_heads(self.spec.num_heads)

    def make_network(self, encoder: Encoder) -> Network:
        spec = self.spec
        dims = {"dim": spec.dim, "hidden": spec.hidden}
        match spec.form:
            case "simsiam":
                make = partial(SimSiamHead, **dims, predictor_hidden=spec.predictor_hidden)
                return attach(encoder, self.heads, make)
            case "barlow":
                return attach(encoder, self.heads, partial(BatchNormProjector, **dims))
        return super().make_network(encoder)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Each head's loss; z_by_head[head] is z_BVD as the form needs it, see `losses.amcl`."""
        losses = {}
        for i, (head, z_BVD) in enumerate(z_by_head.items()):
            two_sided = self.spec.form in ("moco", "simsiam")
            query_BVD, key_BVD = z_BVD.chunk(2, dim=2) if two_sided else (z_BVD, z_BVD)
            self.compare(head, query_BVD, key_BVD)
            queue = None if self.queues is None else self.queues.rows[i].to(z_BVD.dtype)
            losses[head], self._temperatures[head] = adapt(
                z_BVD,
                self.adaptive,
                form=self.spec.form,
                queue=queue,
                off_diagonal=self.spec.off_diagonal,
            )
        if self.queues is not None:
            self.queues.hold(z_by_head)
        return losses

    def after_step(self) -> None:
        """The step's keys join the queue now, so that none met itself in it."""
        super().after_step()
        if self.queues is not None:
            self.queues.push()

    def gauges(self) -> dict[str, Tensor]:
        """Also per head the shares of temperatures within 1 % of either bound."""
        shares = bound_shares(self._temperatures, self.spec.tau_min, self.spec.tau_max)
        return super().gauges() | shares

    def _phi(self, x: Tensor) -> Tensor:
        if self.spec.form == "barlow" and self.spec.unit_columns:
            x = F.normalize(x, dim=-1)
        phi: Tensor = self.temperature_net(x)
        return phi
