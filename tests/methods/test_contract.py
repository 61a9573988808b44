"""The contract of all registered methods; a new module in methods/ is included automatically."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mtcon_ray.data.batch import Batch
from mtcon_ray.evaluate import load_network
from mtcon_ray.methods.base import METHODS, ContrastiveMethod
from mtcon_ray.trainer import Trainer
from mtcon_ray.training.distributed import ALONE
from mtcon_ray.training.step import (
    _backward,
    chunk_seeds,
    compute_gradients,
    encode,
    gather,
    update,
)
from tests.methods.cases import (
    EACH,
    STATEFUL,
    TRAINED,
    VARIANTS,
    class_of,
    make_run,
    make_spec,
)

# Heads of which no loss compares rows by cosine.
NOT_CONTRASTED = {"embedding", "reconstruction", "noise"}
# In this form the temperature network maps columns of the batch, so the order of items matters.
ORDERED = "amcl-barlow"
STEPS = 20
GOLDEN = Path(__file__).with_name("golden")

# Learning rates. A learned temperature may fall, which makes gradients larger.
RATES = {"mtcon-temperature": 0.01}

STATELESS = [name for name in VARIANTS if name not in STATEFUL]
each = pytest.mark.parametrize("name", EACH)


def slow(names: Iterable[str]) -> list[Any]:
    """Returns test parameters that `make check` leaves out."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


each_with_own_state = pytest.mark.parametrize("name", [*TRAINED, *slow(STATEFUL)])


@pytest.fixture
def run(name: str, store: Path, tmp_path: Path) -> Trainer:
    """Returns a training that has not begun."""
    return make_run(make_spec(name), store, tmp_path / "run")


def rows_of(run: Trainer, step: int = 0) -> tuple[dict[str, Tensor], Batch]:
    """Returns every head's rows of a batch, as leaves that require gradients, and the batch."""
    x_NCHW, batch = run._batches(step)
    torch.manual_seed(0)
    z_by_head = gather(encode(run.learner, x_NCHW), ALONE, batch.num_items)
    return {head: z.detach().requires_grad_() for head, z in z_by_head.items()}, batch


def without(batch: Batch, task: str) -> Batch:
    """Returns the batch with all labels of one task unknown."""
    return replace(
        batch,
        labels={t: torch.full_like(y, -1) if t == task else y for t, y in batch.labels.items()},
        label_sets={
            t: torch.full_like(y, 255) if t == task else y for t, y in batch.label_sets.items()
        },
        numbers={t: y * torch.nan if t == task else y for t, y in batch.numbers.items()},
    )


@each
def test_spec_survives_a_round_trip_and_is_closed(name: str) -> None:
    spec = make_spec(name).method
    assert spec.name == VARIANTS.get(name, {"name": name})["name"]
    kind = METHODS[spec.name].Spec
    assert kind.model_validate(spec.model_dump()) == spec
    assert kind.model_validate_json(spec.model_dump_json()) == spec
    with pytest.raises(ValidationError, match="tempertaure"):
        kind.model_validate({**spec.model_dump(), "tempertaure": 0.1})


@each
def test_every_field_is_described(name: str) -> None:
    kind = type(make_spec(name).method)
    fields = {k: f for k, f in kind.model_fields.items() if k != "name"}
    assert [k for k, field in fields.items() if not field.description] == []


@each
def test_every_head_has_a_name_and_rows(run: Trainer) -> None:
    heads = run.learner.method.heads
    assert heads
    assert len(set(heads)) == len(heads)
    z_by_head, batch = rows_of(run)
    assert tuple(z_by_head) == heads
    assert all(z.shape[0] == batch.num_items for z in z_by_head.values())


@each
def test_losses_and_gradients_are_finite_also_without_one_task_s_labels(run: Trainer) -> None:
    method = run.learner.method
    z_by_head, whole = rows_of(run)
    for batch in (whole, *(without(whole, task) for task in run.spec.data.tasks)):
        method.zero_grad()
        output = method(z_by_head, batch)
        losses = output.losses
        assert losses
        assert all(loss.shape == () for loss in losses.values())
        objective, weights = method.weighting(losses, output.ranges)
        objective.backward()
        assert objective.isfinite()
        assert tuple(weights) == tuple(losses)
        learned = [*z_by_head.values(), *method.parameters()]
        assert all(x.grad is None or x.grad.isfinite().all() for x in learned)
    assert any(z.grad is not None and (z.grad != 0).any() for z in z_by_head.values())


@pytest.mark.parametrize("name", [name for name in EACH if name != ORDERED])
def test_the_order_of_items_changes_nothing(run: Trainer) -> None:
    z_by_head, batch = rows_of(run)
    order = torch.randperm(batch.num_items, generator=torch.Generator().manual_seed(0))
    moved = Batch(
        {t: y[order] for t, y in batch.labels.items()},
        batch.num_items,
        {t: y[order] for t, y in batch.label_sets.items()},
        {t: y[order] for t, y in batch.numbers.items()},
        None if batch.condition is None else batch.condition[order],
    )
    losses = run.learner.method(z_by_head, batch).losses
    again = run.learner.method({h: z[order] for h, z in z_by_head.items()}, moved).losses
    for head, loss in losses.items():
        torch.testing.assert_close(again[head], loss, rtol=1e-5, atol=1e-5)


@each
def test_cosines_of_positive_and_random_pairs_are_gauged(run: Trainer) -> None:
    """Names of gauges contain the name of the head only if there are several."""
    method = run.learner.method
    method.progress = 0.9  # in the contrastive phase of LGP
    z_by_head, batch = rows_of(run)
    output = method(z_by_head, batch)
    heads = [h for h in method.heads if h not in NOT_CONTRASTED and method.spec.name != "xent"]
    suffixes = [""] if len(heads) == 1 else [f"/{head}" for head in heads]
    gauges = {k: v for k, v in output.gauges().items() if k.startswith("cosine")}
    wanted = {f"cosine/{pairs}{suffix}" for pairs in ("positive", "random") for suffix in suffixes}
    assert gauges.keys() == (wanted if heads else set())
    for name, gauge in gauges.items():
        assert -1 <= gauge.item() <= 1
        assert not gauge.requires_grad, name


@pytest.mark.parametrize("name", [n for n in EACH if issubclass(class_of(n), ContrastiveMethod)])
def test_temperature_divides_the_similarities(name: str, run: Trainer) -> None:
    """Half the temperature gives the same loss as twice the similarities.

    The other methods have no temperature that divides all similarities.
    """
    method = run.learner.method
    assert isinstance(method, ContrastiveMethod)
    spec = make_spec(name, temperature=method.spec.temperature / 2).method
    sharper = type(method)(spec, method.problem)
    z_by_head, batch = rows_of(run)
    longer = {head: z * 2**0.5 for head, z in z_by_head.items()}
    expected = method(longer, batch).losses
    found = sharper(z_by_head, batch).losses
    assert found.keys() == expected.keys() != set()
    for head, loss in expected.items():
        torch.testing.assert_close(found[head], loss)


@pytest.mark.slow
@each_with_own_state
def test_loss_falls_in_twenty_steps_on_one_batch(name: str, run: Trainer) -> None:
    """In each phase, the last loss is below the first or, as a queue has to fill, the fifth."""
    x_NCHW, batch = run._batches(0)
    losses = []
    for step in range(STEPS):
        torch.manual_seed(0)
        done = update(
            run.learner, x_NCHW, batch, lr=RATES.get(name, 0.05), step=step, num_steps=STEPS
        )
        losses.append(done.objective.item())
    share = getattr(run.spec.method, "masked_share", 0)  # of LGP's first phase
    starts = [ceil(share * STEPS)] if share else []
    for start, end in pairwise([0, *starts, STEPS]):
        phase = losses[start:end]
        assert phase[-1] < phase[4] or phase[-1] < phase[0], phase


@each_with_own_state
def test_chunks_give_the_gradient_of_one_graph_through_all_of_them(run: Trainer) -> None:
    """Chunks of six, six and four examples, in float64: the order of sums hardly matters."""
    learner = run.learner
    for module in (learner.network, learner.method, learner.teacher):
        if module is not None:
            module.double()
    made, batch = run._batches.chunks(0, 6)
    views = [make().double() for make in made]
    torch.manual_seed(0)
    compute_gradients(learner, [partial(torch.clone, x_NCHW) for x_NCHW in views], batch)
    found = {name: p.grad for name, p in _parameters(run) if p.grad is not None}
    learner.optimizer.zero_grad()
    torch.manual_seed(0)
    parts = []
    for seed, x_NCHW in zip(chunk_seeds(3), views, strict=True):
        torch.manual_seed(seed)
        parts.append(encode(learner, x_NCHW))
    whole = {head: torch.cat([z_by_head[head] for z_by_head in parts]) for head in parts[0]}
    _backward(learner, whole, batch)
    expected = {name: p.grad for name, p in _parameters(run) if p.grad is not None}
    assert found.keys() == expected.keys() != set()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-9, atol=1e-11, msg=name)


@each
def test_batch_norm_is_known_before_a_network_is_built(run: Trainer) -> None:
    """A spec with chunks and global batch norm can therefore be refused by `plan`."""
    network, spec = run.network, run.spec
    norms = {name for name, m in network.named_modules() if isinstance(m, _BatchNorm)}
    of_encoder = {name for name in norms if name.startswith("encoder.")}
    assert spec.model.encoder.has_batch_norm == bool(of_encoder)
    assert spec.method.has_batch_norm == bool(norms - of_encoder)


@pytest.mark.parametrize("name", STATELESS)
def test_variants_that_are_not_trained_add_nothing_to_a_checkpoint(
    name: str, run: Trainer, store: Path, tmp_path: Path
) -> None:
    """Whole trainings of their class therefore test their checkpoints, too."""
    plain = make_run(make_spec(run.spec.method.name), store, tmp_path / "plain")
    assert run.learner.method.state_dict().keys() <= plain.learner.method.state_dict().keys()
    assert (run.learner.teacher is None) == (plain.learner.teacher is None)


def _parameters(run: Trainer) -> list[tuple[str, nn.Parameter]]:
    return [*run.network.named_parameters(), *run.learner.method.named_parameters()]


@pytest.mark.parametrize("name", [*TRAINED, *slow(VARIANTS)])
def test_losses_follow_the_golden_curve(
    name: str, run: Trainer, request: pytest.FixtureRequest
) -> None:
    """Ten steps on noise, in float64 so that rounding hardly matters.

    A change of the curve must be intended; --write-golden then writes the new one.
    """
    learner, curve = run.learner, []
    for module in (learner.network, learner.method, learner.teacher):
        if module is not None:
            module.double()
    for step in range(10):
        x_NCHW, batch = run._batches(step)
        generator = torch.Generator().manual_seed(step)
        x_NCHW = torch.randn(x_NCHW.shape, generator=generator, dtype=torch.float64)
        torch.manual_seed(run._batches.seed_of(step))
        done = update(learner, x_NCHW, batch, lr=0.02, step=step, num_steps=10)
        curve.append(done.objective.item())
    file = GOLDEN / f"{name}.json"
    if request.config.getoption("--write-golden"):
        file.write_text(json.dumps([float(f"{value:.7g}") for value in curve]) + "\n")
    assert file.exists(), f"write it by `python -m pytest tests/methods --write-golden -k {name}`"
    known = json.loads(file.read_text())
    assert curve == pytest.approx(known, rel=1e-4, abs=1e-5)


@pytest.mark.slow
@each_with_own_state
def test_a_cut_training_ends_bit_equal_to_an_uncut_one(
    name: str, store: Path, tmp_path: Path
) -> None:
    """The training stops in its second epoch; a new object resumes it from the checkpoint."""
    run = make_run(make_spec(name, steps=5), store, tmp_path / "run")
    uncut = [progress.metrics for progress in run]
    steps = iter(range(10**6))
    first = make_run(run.spec, store, tmp_path / "cut", should_stop=lambda: next(steps) >= 7)
    list(first)
    assert first.interrupted
    second = make_run(run.spec, store, tmp_path / "cut")
    assert second.step == 7
    cut = [progress.metrics for progress in second]
    assert _timeless(cut[-1]) == _timeless(uncut[-1])
    for one, other in (
        (run.network, second.network),
        (run.learner.method, second.learner.method),
    ):
        pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    spec, network = load_network(tmp_path / "cut" / "model.pt")
    assert spec == run.spec
    assert network.names == run.network.names


def _timeless(metrics: dict[str, float]) -> dict[str, float]:
    return {k: v for k, v in metrics.items() if k != "images_per_second"}
