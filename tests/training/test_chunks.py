"""Batch norm in chunks: to it each chunk is a batch."""

from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from mtcon_ray.data.batch import Batch
from mtcon_ray.errors import SpecError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.training.distributed import ALONE
from mtcon_ray.training.step import compute_gradients
from tests.problems import problem
from tests.training.ranks import learner_on

SMALL = {"name": "small", "width": 4}
BATCH = Batch({"shape": torch.arange(8) % 3}, 8)
# Two chunks of four images in two views.
X_NCHW = torch.randn(16, 3, 16, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
CHUNKS = [partial(torch.clone, part) for part in X_NCHW.split(8)]


@pytest.mark.parametrize("method", [{"name": "mtcon"}, {"name": "moco", "queue_size": 32}])
def test_running_moments_move_once_for_each_chunk(method: dict[str, object]) -> None:
    """The running moments change as if each chunk were a batch; the teacher's too."""
    learner = learner_on(ALONE, method, problem("shape", batch_size=8), SMALL, "local")
    modules = [m for m in (learner.network, learner.teacher) if m is not None]
    expected = deepcopy(modules)
    compute_gradients(learner, CHUNKS, BATCH)
    for module, other in zip(modules, expected, strict=True):
        for chunk in CHUNKS:
            other(chunk())
        for name, moment in other.named_buffers():
            assert torch.equal(module.get_buffer(name), moment), name


def test_what_is_random_in_the_network_repeats_in_each_chunk() -> None:
    """Both forward passes of a chunk use the same random numbers; other chunks use others."""
    learner = learner_on(ALONE, {"name": "simclr"}, problem("shape", batch_size=8), SMALL, "local")
    dropped: list[Tensor] = []
    learner.network.heads[0] = nn.Dropout()
    learner.network.heads[0].register_forward_hook(lambda _, __, z_ND: dropped.append(z_ND))
    compute_gradients(learner, [CHUNKS[0], CHUNKS[0]], BATCH)  # equal but for what is dropped
    first, second, first_again, second_again = dropped
    assert torch.equal(first, first_again)
    assert torch.equal(second, second_again)
    assert not torch.equal(first, second)


def test_moments_of_the_whole_batch_are_refused_with_chunks() -> None:
    """Batch norm's moments would be the chunk's. Without batch norm the setting has no meaning."""
    raw = {"name": "chunks", "train": {"batch_size": 16, "chunk_size": 6}}
    with pytest.raises(SpecError, match=r"batch_norm must be local .*chunk_size is set.*and 6"):
        parse_spec({**raw, "model": {"encoder": SMALL}})
    vit = {"encoder": {"name": "vit"}}
    parse_spec({**raw, "model": vit})
    with pytest.raises(SpecError, match="batch_norm must be local"):
        parse_spec({**raw, "model": vit, "method": {"name": "simsiam"}})
