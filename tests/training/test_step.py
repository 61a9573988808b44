"""One update: items, views, rejected values and clamped parameters."""

import math
import threading
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.data.sampling import Examples
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.errors import DivergedError
from mtcon_ray.methods.base import MethodOutput
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.spec.train import TrainSpec
from mtcon_ray.training import step as steps
from mtcon_ray.training.batches import Batches
from mtcon_ray.training.device import ImageFeed
from mtcon_ray.training.distributed import ALONE, Ranks
from mtcon_ray.training.optimizer import make_optimizer
from tests.some import some
from tests.training.learners import CPU, SPEC, batches, learner, snapshot


def rows_of(make: Batches, step: int) -> np.ndarray:
    """Returns the items of a step, in order."""
    rows: np.ndarray = make._examples.rows_EP[make._chosen(step), 0]
    return rows


def test_an_epoch_takes_every_item_at_most_once(dataset: Dataset) -> None:
    """28 training items give three whole batches of 8, in a different order in each epoch."""
    make = batches(dataset)
    assert make.steps_per_epoch == 3
    epochs = [[rows_of(make, step).tolist() for step in range(e, e + 3)] for e in (0, 3)]
    train = set(dataset.table.rows("train").tolist())
    for epoch in epochs:
        rows = [row for batch in epoch for row in batch]
        assert len(set(rows)) == len(rows) == 24
        assert set(rows) <= train
    assert epochs[0] != epochs[1]


def test_the_same_items_have_other_views_in_another_step(dataset: Dataset) -> None:
    """The batch is the whole training split; both steps are sorted by item to compare them."""
    make = batches(dataset, batch_size=28)
    views = [make(step)[0].unflatten(0, (28, 2)) for step in (0, 1)]
    one, other = (x[rows_of(make, step).argsort()] for step, x in enumerate(views))
    assert (one != other).flatten(1).any(dim=1).all()


@pytest.mark.parametrize("size", [8, 3])
def test_reading_ahead_changes_no_view(
    dataset: Dataset, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers whole batches and chunks made twice, beyond the end of an epoch."""
    make, ahead = batches(dataset), batches(dataset)
    rows = np.unique(ahead._examples.rows_EP)
    ahead._feed = ImageFeed(dataset.images, rows, CPU)
    ahead._feed.streams = True
    readers: list[str] = []
    read = ahead._feed._read

    def named(rows: np.ndarray) -> Tensor:
        readers.append(threading.current_thread().name)
        return read(rows)

    monkeypatch.setattr(ahead._feed, "_read", named)
    for step in range(5):
        chunks, _ = make.chunks(step, size)
        found, _ = ahead.chunks(step, size)
        for _ in range(1 if len(chunks) == 1 else 2):
            for one, other in zip(chunks, found, strict=True):
                assert torch.equal(one(), other())
    # Only the very first batch cannot be prefetched.
    assert readers.count("MainThread") == 1


def test_labels_are_those_of_the_images(dataset: Dataset) -> None:
    """The batch has only the tasks' labels, and all of them on every rank."""
    make = batches(dataset, Ranks(1, 2))
    _, batch = make(2)
    assert batch.labels.keys() == set(dataset.tasks)
    for task, labels in batch.labels.items():
        assert labels.tolist() == dataset.table.labels[task][rows_of(make, 2)].tolist()


def test_sets_are_those_of_the_items(tmp_path: Path) -> None:
    fields = {"num_items": 60, "tasks": ["attributes"], "held_out": []}
    spec = SOURCES["synthetic"].Spec.model_validate(fields)
    data = open_dataset(spec, view_size=16, store=tmp_path)
    make = batches(data)
    _, batch = make(1)
    rows = rows_of(make, 1)
    assert batch.labels == {}
    assert np.array_equal(batch.label_sets["attributes"], data.table.multi_hot["attributes"][rows])


def test_clipping_scales_the_whole_gradient(dataset: Dataset) -> None:
    """The length of the step is lr times the limit."""
    x_NCHW, batch = batches(dataset)(0)
    one = learner(max_grad_norm=1e-3)
    before = snapshot(one.network) | snapshot(one.method)
    steps.update(one, x_NCHW, batch, lr=2.0, step=0, num_steps=9)
    after = snapshot(one.network) | snapshot(one.method)
    moved = torch.stack([(after[n] - before[n]).norm() for n in before]).norm()
    assert moved.item() == pytest.approx(2e-3, rel=1e-2)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lars"])
@pytest.mark.parametrize("where", ["weight", "log variance"])
def test_divergence_changes_no_parameter(dataset: Dataset, where: str, optimizer: str) -> None:
    """Network and weighting stay unchanged, later too; the error names the first bad step."""
    make = batches(dataset)
    one = learner()
    spec = TrainSpec.model_validate({"optimizer": optimizer})
    one = replace(one, optimizer=make_optimizer(one.network, one.method, spec))
    steps.update(one, *make(0), lr=0.01, step=10, num_steps=99)
    one.check()
    poisoned = next((one.network.encoder if where == "weight" else one.method).parameters())
    kept = poisoned.detach().clone()
    with torch.no_grad():
        poisoned.fill_(math.nan)
    before = snapshot(one.network) | snapshot(one.method)
    for step in (11, 12):
        steps.update(one, *make(step), lr=0.5, step=step, num_steps=99)
        for name, value in (snapshot(one.network) | snapshot(one.method)).items():
            torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)
        with torch.no_grad():
            poisoned.copy_(kept)
        before = snapshot(one.network) | snapshot(one.method)
    with pytest.raises(DivergedError, match="got a gradient of norm nan at step 12;"):
        one.check()


def test_a_tally_averages_over_steps() -> None:
    """The objective comes first, then every head."""
    tally = steps.Tally()
    for value in (1.0, 2.0):
        output = MethodOutput({"a": torch.tensor(3 * value)})
        tally.add(steps.Update(torch.tensor(value), output, {}, {}))
    assert tally.means() == [1.5, 4.5]


def test_examples_of_several_pictures_become_rows_in_their_order(dataset: Dataset) -> None:
    """Triplets are such examples: one view of each image, and the condition in the batch."""
    rows_EP = np.array([[3, 1, 2], [5, 9, 4], [7, 8, 6]])
    examples = Examples(rows_EP, 1, condition_E=np.array([2, 0, 1]))
    spec = with_values(SPEC, {"train.batch_size": 3})
    make = Batches(dataset, examples, spec, device=CPU, ranks=ALONE)
    x_NCHW, batch = make(0)
    chosen = make._chosen(0)
    assert x_NCHW.shape == (9, 3, 16, 16)
    assert some(batch.condition).tolist() == np.array([2, 0, 1])[chosen].tolist()
    colour = dataset.table.labels["colour"]
    assert batch.labels["colour"].tolist() == colour[rows_EP[chosen, 0]].tolist()


def test_teacher_and_average_follow_and_the_teacher_s_rows_stand_behind(dataset: Dataset) -> None:
    """After the network's step, p_teacher = m p_teacher + (1 - m) p_network.

    The average follows by ema, with its buffers. Counters stay 0.
    """
    x_NCHW, batch = batches(dataset)(0)
    one = learner()
    one.method.momentum = 0.75
    teacher, average = (deepcopy(one.network).requires_grad_(False) for _ in range(2))
    both = replace(one, teacher=teacher, average=average, ema=0.25)
    z_by_head = steps.gather(steps.encode(both, x_NCHW), ALONE, batch.num_items)
    for z_BVD in z_by_head.values():
        assert z_BVD.shape == (8, 2, 16)
        assert torch.equal(z_BVD[..., :8], z_BVD[..., 8:])
    taught, before = snapshot(teacher), deepcopy(average.state_dict())
    steps.update(both, x_NCHW, batch, lr=9.0, step=0, num_steps=9)
    for name, parameter in one.network.named_parameters():
        expected = 0.75 * taught[name] + 0.25 * parameter
        torch.testing.assert_close(teacher.get_parameter(name), expected)
    for name, now in one.network.state_dict().items():
        expected = 0.25 * before[name] + 0.75 * now if now.is_floating_point() else before[name]
        torch.testing.assert_close(average.state_dict()[name], expected)
    assert not torch.equal(before["encoder.centre.running_mean"], now.new_zeros(1)), "moments move"


def test_workers_draw_different_random_numbers(dataset: Dataset) -> None:
    """Else dropout would be the same on all of them."""
    first, second = (batches(dataset, Ranks(rank, 2)).seed_of(3) for rank in range(2))
    assert first != second
    assert first == batches(dataset).seed_of(3)


def test_the_optimizer_gets_gradients_of_its_parameters_strides(dataset: Dataset) -> None:
    one, others = learner(), list[tuple[int, ...]]()
    thin = next(p for p in one.network.parameters() if p.dim() == 4)

    def change(parameter: Tensor) -> None:
        parameter.grad = some(parameter.grad).transpose(0, 1).contiguous().transpose(0, 1)
        others.append(parameter.grad.stride())

    thin.register_post_accumulate_grad_hook(change)
    steps.update(one, *batches(dataset)(0), lr=0.1, step=0, num_steps=10)
    assert others[0] != some(thin.grad).stride() == thin.stride()


def test_a_gradient_that_is_not_finite_is_not_applied(dataset: Dataset) -> None:
    """The objective may be finite all the same."""
    one = learner()
    next(one.network.parameters()).register_hook(lambda gradient: gradient * math.inf)
    before = snapshot(one.network)
    assert steps.update(one, *batches(dataset)(0), lr=0.1, step=0, num_steps=9).objective.isfinite()
    assert all(torch.equal(p, before[name]) for name, p in snapshot(one.network).items())
    with pytest.raises(DivergedError):
        one.check()
