"""The method MoCo: keys of a momentum encoder, negatives from a queue."""

from itertools import permutations

import pytest
import torch
from torch import Tensor

from mtcon_ray.data.batch import Batch
from mtcon_ray.methods.self_supervised import MoCo
from tests.losses.cases import random_rows
from tests.problems import problem

NOBODY = Batch({}, 3)


def rows(seed: int, num_views: int = 2) -> Tensor:
    """Returns [query | key] of three items, [3, V, 8]: unit rows of width 4 each."""
    return torch.cat(list(random_rows(2, 3, num_views, 4, seed=seed)), dim=2)


def make(**fields: int | float) -> MoCo:
    return MoCo(MoCo.Spec.model_validate({"queue_size": 8, **fields}), problem("shape"))


def test_more_views_are_averaged_over_all_other_views() -> None:
    method, z_BVD = make(), rows(0, num_views=3)
    query, key = z_BVD.chunk(2, dim=2)
    queue = method.queues.rows[0].double()
    first, second = (list(views) for views in zip(*permutations(range(3), 2), strict=True))
    positive_BP1 = (query[:, first] * key[:, second]).sum(dim=2, keepdim=True)
    logits_BPK = torch.cat([positive_BP1, query[:, first] @ queue.T], dim=2) / 0.1
    expected = (logits_BPK.logsumexp(dim=2) - logits_BPK[:, :, 0]).mean()
    torch.testing.assert_close(method({"instance": z_BVD}, NOBODY).losses["instance"], expected)


def test_the_queue_is_first_in_first_out_and_wraps_around() -> None:
    """Each step appends six keys to a queue of eight; the second step wraps around after two."""
    method = make(num_heads=2)
    heads = ("instance-1", "instance-2")
    start = method.queues.rows.clone()
    steps = [{head: rows(10 * step + i) for i, head in enumerate(heads)} for step in range(2)]
    keys = [torch.stack([z[:, :, 4:].flatten(0, 1).float() for z in s.values()]) for s in steps]
    output = method(steps[0], NOBODY)
    assert torch.equal(method.queues.rows, start)
    method.after_step(output)
    assert torch.equal(method.queues.rows, torch.cat([keys[0], start[:, 6:]], dim=1))
    assert method.queues.position == 6
    method.after_step(method(steps[1], NOBODY))
    expected = torch.cat([keys[1][:, 2:], keys[0][:, 4:], keys[1][:, :2]], dim=1)
    assert torch.equal(method.queues.rows, expected)
    assert method.queues.position == 4


def test_the_queue_starts_as_unit_rows_of_the_seed_and_is_saved() -> None:
    ours, same = make(num_heads=2), make(num_heads=2)
    other = MoCo(MoCo.Spec(queue_size=8, num_heads=2), problem("shape", seed=1))
    first, second = ours.queues.rows
    torch.testing.assert_close(ours.queues.rows.norm(dim=2), torch.ones(2, 8))
    assert torch.equal(ours.queues.rows, same.queues.rows)
    assert not torch.equal(ours.queues.rows, other.queues.rows)
    assert not torch.equal(first, second)
    assert set(ours.state_dict()) == {"queues.rows", "queues.position"}


def test_bad_settings_are_refused() -> None:
    fits = MoCo.Spec(queue_size=12)
    fits.check(problem("shape"))
    with pytest.raises(ValueError, match=r"queue_size must be at least .* the 12 keys .* got 11"):
        MoCo.Spec(queue_size=11).check(problem("shape"))
    with pytest.raises(ValueError, match=r"num_views must be at least 2 .* got 1"):
        fits.check(problem("shape", num_views=1))
