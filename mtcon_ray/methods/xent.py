"""Cross-entropy: a classifier per task, and equal or learned weights of the tasks."""

from collections.abc import Mapping

from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.losses.numeric import cross_entropy
from mtcon_ray.losses.weighting import FixedWeights, LearnedVariance, Weighting
from mtcon_ray.methods.base import Method, MethodOutput
from mtcon_ray.spec.methods.supervised import XEntSpec

# exp(-s) CE + s/2: Kendall et al. 2018, arXiv:1705.07115, eq. 10.
KENDALL_PENALTY = 0.5


class XEnt(Method):
    """Softmax cross-entropy on a single task or on all tasks with classes. Every view is a row."""

    spec: XEntSpec

    def name_heads(self) -> tuple[str, ...]:
        return self.problem.of_kind("classes") if self.spec.task is None else (self.spec.task,)

    def make_head(self, head: str, width: int) -> nn.Module:
        num_classes, dim = self.problem.sizes[head], self.problem.head_dim
        if self.spec.head == "linear":
            return nn.Linear(width, num_classes)
        hidden = self.problem.head_hidden or width
        embedding = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, dim))
        return nn.Sequential(embedding, nn.ReLU(), nn.Linear(dim, num_classes))

    def make_weighting(self) -> Weighting:
        if self.spec.weighting == "none":
            return FixedWeights()
        return LearnedVariance(self.heads, penalty=KENDALL_PENALTY)

    def forward(self, z_by_head: Mapping[str, Tensor], batch: Batch) -> MethodOutput:
        """Returns each task's cross-entropy in nats. z_by_head[task] holds logits [B, V, C]."""
        return MethodOutput({t: cross_entropy(z, batch.labels[t]) for t, z in z_by_head.items()})
