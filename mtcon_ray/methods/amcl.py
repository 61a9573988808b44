"""AMCL: several projection heads, and a learned temperature for every pair of embeddings.

Wang et al. 2023, arXiv:2310.05615. The five forms extend SimCLR, MoCo, SimSiam, Barlow Twins and
plain InfoNCE.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcon_ray.losses.amcl import TWO_SIDED, Adaptive, TemperatureNet, adapt
from mtcon_ray.methods.self_supervised import BarlowTwins, SelfSupervisedMethod, SimSiam
from mtcon_ray.spec.methods.self_supervised import AMCLSpec
from mtcon_ray.spec.problem import Problem


class AMCL(SelfSupervisedMethod):
    """Adaptive multi-head contrastive learning. All heads share a temperature network.

    The objective is the sum of the heads' losses (see `losses.amcl`).
    """

    spec: AMCLSpec

    def __init__(self, spec: AMCLSpec, problem: Problem) -> None:
        super().__init__(spec, problem)
        # Barlow Twins compares columns. They are vectors over the items of a batch.
        width = {"barlow": problem.batch_size, "simsiam": spec.dim}.get(spec.form, problem.head_dim)
        self.temperature_net = seeded_temperature_net(width, problem.seed)
        default_beta = 1e-6 if spec.form == "barlow" else 1e-4
        beta = default_beta if spec.beta is None else spec.beta
        bounds = spec.tau_min, spec.tau_max
        self.adaptive = Adaptive(self._phi, beta, *bounds, spec.top_k, spec.form, spec.off_diagonal)
        if spec.form == "moco":
            self.add_queues(spec)
        self.is_two_sided = spec.form in TWO_SIDED

    def make_head(self, head: str, width: int) -> nn.Module:
        plain = {"simsiam": SimSiam, "barlow": BarlowTwins}.get(self.spec.form)
        if plain is None:
            return super().make_head(head, width)
        return plain(self.spec, self.problem).make_head(head, width)

    def head_loss(self, z_BVD: Tensor, index: int) -> Tensor:
        """Returns the scalar loss of a head. z_BVD is as in `losses.amcl`."""
        queue_KD = None if self.momentum is None else self.queues.rows[index].to(z_BVD.dtype)
        return adapt(z_BVD, self.adaptive, queue=queue_KD)

    def _phi(self, x: Tensor) -> Tensor:
        if self.spec.form == "barlow" and self.spec.unit_columns:
            x = F.normalize(x, dim=-1)
        phi: Tensor = self.temperature_net(x)
        return phi


def seeded_temperature_net(width: int, seed: int) -> TemperatureNet:
    """Returns a network with weights from the seed. Keeps the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TemperatureNet(width)
