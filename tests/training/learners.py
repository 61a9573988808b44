"""Helpers for tests of steps: batches, and a very small network with its optimizer."""

import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.sampling import Examples
from mtcon_ray.methods.mtcon import MTCon
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.run_spec import parse_spec, with_values
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.batches import Batches
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.step import Learner
from tests.problems import problem

CPU = torch.device("cpu")
SPEC = parse_spec({"name": "steps", "views": {"size": 16}})


def batches(dataset: Dataset, ranks: Ranks = ALONE, batch_size: int = 8) -> Batches:
    """Returns batches on the CPU."""
    spec = with_values(SPEC, {"train.batch_size": batch_size})
    examples = Examples(dataset.table.rows("train")[:, None], spec.views.num_views)
    return Batches(dataset, examples, spec, device=CPU, ranks=ranks)


def learner(*, max_grad_norm: float | None = None, autocast: torch.dtype | None = None) -> Learner:
    """Returns a very small network with two heads and learned weights."""
    spec = ModelSpec.model_validate({"encoder": {"name": "small", "width": 4}, "head_dim": 8})
    method = MTCon(MTCon.Spec(), problem("shape", "colour", head_dim=8))
    network = build_network(spec, method.make_network, seed=0)
    optimizer = make_optimizer(network, method, TrainSpec(momentum=0, weight_decay=0))
    scaler = GradScaler("cpu", enabled=autocast == torch.float16)
    parts = network, network, method, optimizer, ALONE
    return Learner(*parts, autocast, max_grad_norm, scaler=scaler)


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    """Returns copies of all parameters."""
    return {name: p.detach().clone() for name, p in module.named_parameters()}
