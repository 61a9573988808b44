"""Helpers for tests of several workers: their processes, and learners in float64."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.problem import Problem
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.distributed import Ranks, parallelise
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.step import Learner

# Labels of a batch of eight items. Some are missing.
LABELS = {"shape": [0, 1, 0, 2, -1, 1, 2, 0], "colour": [0, 0, 1, 1, 1, 0, -1, -1]}


def in_ranks(compute: Callable[[Ranks], Any], world: int, folder: Path) -> list[Any]:
    """Returns what a function of a module computes in each of `world` processes of a group."""
    spawn(_work, args=(compute, world, folder), nprocs=world)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


def _work(rank: int, compute: Callable[[Ranks], Any], world: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=world)
    torch.save(compute(Ranks(rank, world)), folder / f"{rank}.pt")
    dist.destroy_process_group()


def learner_on(
    ranks: Ranks, method: dict[str, Any], known: Problem, encoder: dict[str, Any], batch_norm: str
) -> Learner:
    """Returns a learner with a small network. Its teacher has other parameters."""
    made = METHODS[method["name"]](METHODS.spec(method["name"])(**method), known).double()
    spec = ModelSpec.model_validate({"encoder": encoder, "head_dim": known.head_dim})
    network, teacher = (
        build_network(spec, made.make_network, seed=seed).double() for seed in range(2)
    )
    forward = parallelise(network, ranks, batch_norm=batch_norm)
    parallelise(teacher.requires_grad_(False), ranks, batch_norm=batch_norm)
    optimizer = make_optimizer(network, made, TrainSpec())
    kept = None if made.momentum is None else teacher
    return Learner(network, forward, made, optimizer, ranks, teacher=kept)
