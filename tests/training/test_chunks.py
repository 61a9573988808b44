"""Training in chunks equals training on whole batches; to batch norm each chunk is a batch."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from mtcon_ray.data.batch import Batch
from mtcon_ray.errors import SpecError
from mtcon_ray.methods import METHODS
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training.distributed import ALONE, Ranks, parallelise
from mtcon_ray.training.optimizer import make_optimizer
from mtcon_ray.training.step import Learner, compute_gradients, update
from tests.problems import problem

NUM_ITEMS, WORLD = 8, 2
VIT = {"name": "vit", "patch": 4, "width": 16, "depth": 3, "heads": 2}
SMALL = {"name": "small", "width": 4}
LABELS = {"shape": [0, 1, 0, 2, -1, 1, 2, 0], "colour": [0, 0, 1, 1, 1, 0, -1, -1]}
CASES: dict[str, dict[str, Any]] = {
    "mtcon": {},
    "supcon": {"task": "shape"},
    "simclr": {},
    "moco": {"queue_size": 32},
    "lgp": {"masked_share": 0.1},  # the phase without masks, which has no randomness
}
ON_RANKS = ("mtcon", "supcon", "simclr", "lgp")


def make(case: str, ranks: Ranks = ALONE, encoder: Any = VIT) -> Learner:
    """Returns a learner in float64 with a small network; its teacher has different parameters."""
    kind = METHODS[case]
    spec = kind.Spec.model_validate({"name": case, **CASES[case]})
    known = problem(*LABELS, batch_size=NUM_ITEMS, encoder=encoder["name"])
    method = kind(spec, known).double()
    model = ModelSpec.model_validate({"encoder": encoder, "head_dim": 4})
    network = build_network(model, method.make_network, seed=0).double()
    forward = parallelise(network, ranks, batch_norm="local")
    teacher = None
    if method.momentum is not None:
        teacher = build_network(model, method.make_network, seed=1).double().requires_grad_(False)
    optimizer = make_optimizer(network, method, TrainSpec())
    return Learner(network, forward, method, optimizer, ranks, teacher=teacher)


def batch_of(seed: int) -> tuple[Tensor, Batch]:
    """Returns all views of a global batch and its labels."""
    generator = torch.Generator().manual_seed(seed)
    x_NCHW = torch.randn(2 * NUM_ITEMS, 3, 16, 16, generator=generator, dtype=torch.float64)
    return x_NCHW, Batch({t: torch.tensor(y) for t, y in LABELS.items()}, NUM_ITEMS)


def in_chunks(x_NCHW: Tensor, size: int) -> list[Callable[[], Tensor]]:
    """Returns the chunks in the form of `Batches.chunks`."""
    return [partial(torch.clone, part) for part in x_NCHW.split(2 * size)]


def two_updates(case: str, ranks: Ranks, size: int | None) -> dict[str, Tensor]:
    """Returns all parameters and buffers after two updates."""
    learner = make(case, ranks)
    for step in range(2):
        x_NCHW, batch = batch_of(step)
        share = x_NCHW[ranks.share(len(x_NCHW))]
        views = share if size is None else in_chunks(share, size)
        update(learner, views, batch, lr=0.05, step=step + 2, num_steps=9)
    return {**learner.network.state_dict(), **learner.method.state_dict()}


def work(rank: int, folder: Path) -> None:
    """Runs one of two processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=WORLD)
    found = {case: two_updates(case, Ranks(rank, WORLD), 3) for case in ON_RANKS}
    torch.save(found, folder / f"{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
def test_chunks_on_two_workers_train_as_the_whole_batch_on_one(tmp_path: Path) -> None:
    """Each worker has chunks of three items and one item; the workers stay equal."""
    spawn(work, args=(tmp_path,), nprocs=WORLD)
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(WORLD))
    for case in ON_RANKS:
        for name, value in two_updates(case, ALONE, None).items():
            assert torch.equal(first[case][name], second[case][name]), (case, name)
            torch.testing.assert_close(first[case][name], value, rtol=1e-8, atol=1e-10, msg=name)


def test_running_moments_move_once_for_each_chunk() -> None:
    """The running moments change as if each chunk were a batch; the teacher's too."""
    for learner in (make("mtcon", encoder=SMALL), make("moco", encoder=SMALL)):
        x_NCHW, batch = batch_of(1)
        modules = [m for m in (learner.network, learner.teacher) if m is not None]
        expected = deepcopy(modules)
        compute_gradients(learner, in_chunks(x_NCHW, 4), batch)
        for module, other in zip(modules, expected, strict=True):
            for chunk in in_chunks(x_NCHW, 4):
                other(chunk())
            for name, moment in other.named_buffers():
                assert torch.equal(module.get_buffer(name), moment), name


class Dropping(nn.Module):
    """A head that drops features at random and records its masks."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Tensor] = []

    def forward(self, h_ND: Tensor) -> Tensor:
        self.given.append((nn.functional.dropout(h_ND.detach() * 0 + 1) > 0)[:, :4])
        return h_ND[:, :4] * self.given[-1]


def test_what_is_random_in_the_network_repeats_in_each_chunk() -> None:
    """Both forward passes of a chunk use the same random numbers; other chunks use others."""
    learner = make("simclr")
    dropping = Dropping()
    learner.network.heads[0] = dropping
    x_NCHW, batch = batch_of(1)
    compute_gradients(learner, in_chunks(x_NCHW, 4), batch)
    first, second, first_again, second_again = dropping.given
    assert torch.equal(first, first_again)
    assert torch.equal(second, second_again)
    assert not torch.equal(first, second)


RAW: dict[str, Any] = {
    "name": "chunks",
    "data": {"kind": "synthetic", "num_items": 60, "tasks": ["shape", "colour"], "held_out": []},
    "views": {"size": 16},
    "model": {"encoder": SMALL, "head_dim": 8, "batch_norm": "local"},
    "train": {"epochs": 2, "batch_size": 16, "chunk_size": 6, "precision": "float32"},
    "evaluate": {"every": 2, "bootstrap": 10},
}


def test_moments_of_the_whole_batch_are_refused_with_chunks() -> None:
    """Batch norm's moments would be the chunk's. Without batch norm the setting has no meaning."""
    model = {**RAW["model"], "batch_norm": "global"}
    with pytest.raises(SpecError, match=r"batch_norm must be local .*chunk_size is set.*and 6"):
        parse_spec({**RAW, "model": model})
    parse_spec({**RAW, "model": {"encoder": VIT}})
    with pytest.raises(SpecError, match="batch_norm must be local"):
        parse_spec({**RAW, "model": {"encoder": VIT}, "method": {"name": "simsiam"}})
