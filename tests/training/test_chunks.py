"""Training in chunks equals training on whole batches; to batch norm each chunk is a batch."""

from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.step import Learner, compute_gradients, update
from tests.problems import problem
from tests.training.ranks import in_ranks, learner_on

NUM_ITEMS = 8
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
    """Returns a learner with a small network, by default without batch norm."""
    known = problem(*LABELS, batch_size=NUM_ITEMS, encoder=encoder["name"])
    return learner_on(ranks, {"name": case, **CASES[case]}, known, encoder, "local")


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


def all_updates(ranks: Ranks) -> dict[str, dict[str, Tensor]]:
    return {case: two_updates(case, ranks, 3) for case in ON_RANKS}


@pytest.mark.slow
def test_chunks_on_two_workers_train_as_the_whole_batch_on_one(tmp_path: Path) -> None:
    """Each worker has chunks of three items and one item; the workers stay equal."""
    first, second = in_ranks(all_updates, 2, tmp_path)
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


def test_moments_of_the_whole_batch_are_refused_with_chunks() -> None:
    """Batch norm's moments would be the chunk's. Without batch norm the setting has no meaning."""
    raw = {"name": "chunks", "train": {"batch_size": 16, "chunk_size": 6}}
    with pytest.raises(SpecError, match=r"batch_norm must be local .*chunk_size is set.*and 6"):
        parse_spec({**raw, "model": {"encoder": SMALL}})
    parse_spec({**raw, "model": {"encoder": VIT}})
    with pytest.raises(SpecError, match="batch_norm must be local"):
        parse_spec({**raw, "model": {"encoder": VIT}, "method": {"name": "simsiam"}})
