"""Helpers for tests of several workers: their processes, and learners in float64."""

import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.multiprocessing.spawn import spawn

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.problem import Problem
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.distributed import Ranks, parallelise
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.step import Learner, update
from tests.problems import problem

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


def learner_on(ranks: Ranks, method: Any, known: Problem, encoder: Any, batch_norm: str) -> Learner:
    """Returns a learner with a small network. Its teacher has other parameters."""
    made = METHODS[method["name"]](METHODS.spec(method["name"])(**method), known).double()
    spec = ModelSpec.model_validate({"encoder": encoder, "head_dim": known.head_dim})
    network, teacher = (build_network(spec, made.make_network, seed).double() for seed in (0, 1))
    forward = parallelise(network, ranks, batch_norm=batch_norm)
    parallelise(teacher.requires_grad_(False), ranks, batch_norm=batch_norm)
    optimizer = make_optimizer(network, made, TrainSpec())
    kept = None if made.momentum is None else teacher
    return Learner(network, forward, made, optimizer, ranks, teacher=kept)


def two_updates(
    ranks: Ranks, method: dict[str, Any], encoder: dict[str, Any], batch_norm: str = "global",
    chunk_size: int | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Returns the state of all modules after two updates on eight items, and the losses."""
    known = problem(*LABELS, batch_size=8, encoder=encoder["name"])
    learner = learner_on(ranks, method, known, encoder, batch_norm)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 2 * 8, 3, 16, 16, generator=generator, dtype=torch.float64)
    batch, kept = Batch({t: torch.tensor(y) for t, y in LABELS.items()}, 8), {}
    for step in range(2):
        views: Any = x[step, ranks.share(2 * 8)]
        if chunk_size is not None:
            views = [partial(torch.clone, part) for part in views.split(2 * chunk_size)]
        done = update(learner, views, batch, lr=0.05, step=step + 2, num_steps=9)
        kept[f"loss {step}"] = done.objective
    modules = {"network": learner.network, "method": learner.method, "teacher": learner.teacher}
    for part, module in modules.items():
        if module is not None:
            kept |= {f"{part} {name}": value for name, value in module.state_dict().items()}
            learned = module.named_parameters()
            kept |= {f"{part} grad {n}": p.grad for n, p in learned if p.grad is not None}
    return kept
