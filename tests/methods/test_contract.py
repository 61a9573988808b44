"""The contract of all registered methods; a new module in methods/ is included automatically."""

import json
from dataclasses import replace
from functools import partial
from itertools import pairwise, product
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from mtcon_ray.data.batch import Batch
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.errors import SpecError
from mtcon_ray.evaluate import load_network
from mtcon_ray.losses.amcl import FORMS
from mtcon_ray.methods.base import METHODS, ContrastiveMethod
from mtcon_ray.spec import RunSpec, parse_spec
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

CPU = torch.device("cpu")
# A method is tested with the first combination of tasks and encoder that its spec accepts.
TASKS: tuple[tuple[str, ...], ...] = (("shape", "colour"), ("attributes",))
ENCODERS: tuple[dict[str, Any], ...] = (
    {"name": "small", "width": 4},
    {"name": "vit", "patch": 4, "width": 16, "depth": 3, "heads": 2},
)
# Values for required fields of methods, other than the name.
REQUIRED = {"task": "shape"}
# Values for optional fields: small networks, and ten steps per epoch.
SMALL = {"dim": 16, "hidden": 16, "predictor_hidden": 8, "queue_size": 80, "num_triplets": 160}
# Further settings of methods, by the name that their tests have.
VARIANTS: dict[str, dict[str, Any]] = {
    # With the paper's tau_min of 1e-5, losses without negatives change by 1e4 from step to step.
    **{f"amcl-{form}": {"name": "amcl", "form": form, "tau_min": 0.05} for form in FORMS},
    "amcl-released": {"name": "amcl", "regulariser": "released"},
    "simclr-heads": {"name": "simclr", "num_heads": 3},
    **{
        f"{name}-amcl": {"name": name, "contrast": "amcl", "tau_min": 0.05, "num_heads": 2}
        for name in ("can", "lgp")
    },
    "mtcon-calibrated": {"name": "mtcon", "weighting": "calibrated"},
    "mtcon-equal": {"name": "mtcon", "weighting": "equal"},
    "mtcon-temperature": {"name": "mtcon", "weighting": "temperature"},
    "mtcon-mixed": {"name": "mtcon", "weighting": "calibrated"},
    "xent-kendall": {"name": "xent", "weighting": "kendall"},
    "csn-fixed": {"name": "csn", "masks": "fixed_disjoint"},
    "scenet-pair": {"name": "scenet", "weights_from": "pair"},
}
# Heads of which no loss compares rows by cosine.
NOT_CONTRASTED = {"embedding", "reconstruction", "noise"}
# Tasks of all kinds in one training.
TASKS_OF = {"mtcon-mixed": (("shape", "attributes", "size"),)}
# In this form the temperature network maps columns of the batch, so the order of items matters.
ORDERED = "amcl-barlow"
STEPS = 20
GOLDEN = Path(__file__).with_name("golden")

# Learning rates. A learned temperature may fall, which makes gradients larger.
RATES = {"mtcon-temperature": 0.01}
# The method without training is tested in tests/methods/test_none.py.
TRAINED = [name for name in METHODS if METHODS[name].Spec.trains]
pytestmark = pytest.mark.parametrize("name", [*TRAINED, *VARIANTS])


def make_spec(name: str, **method: Any) -> RunSpec:
    """Returns the spec of two epochs of ten steps on synthetic images of 16 x 16 pixels."""
    variant = VARIANTS.get(name, {"name": name})
    fields = METHODS[variant["name"]].Spec.model_fields.items()
    required = {key: REQUIRED[key] for key, field in fields if field.is_required()}
    small = {key: SMALL[key] for key, _ in fields if key in SMALL}
    refusals = []
    for tasks, encoder in product(TASKS_OF.get(name, TASKS), ENCODERS):
        try:
            return parse_spec(
                {
                    "name": "contract",
                    "data": {"kind": "synthetic", "num_items": 230, "tasks": tasks, "held_out": []},
                    "views": {"size": 16},
                    "model": {"encoder": encoder, "head_dim": 8},
                    "method": {**required, **small, **variant, **method},
                    "train": {"epochs": 2, "batch_size": 16, "lr": 0.05, "precision": "float32"},
                    "evaluate": {"every": 2, "bootstrap": 20},
                }
            )
        except SpecError as error:
            refusals.append(str(error))
    raise AssertionError(refusals)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory of the synthetic images, which are made once for all methods."""
    return tmp_path_factory.mktemp("store")


def make_data(spec: RunSpec, store: Path) -> Dataset:
    return open_dataset(spec.data, view_size=16, store=store)


def make_run(spec: RunSpec, store: Path, folder: Path, **options: Any) -> Trainer:
    return Trainer(spec, make_data(spec, store), folder, device=CPU, threads=1, **options)


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


def test_spec_survives_a_round_trip_and_is_closed(name: str) -> None:
    spec = make_spec(name).method
    assert spec.name == VARIANTS.get(name, {"name": name})["name"]
    kind = METHODS[spec.name].Spec
    assert kind.model_validate(spec.model_dump()) == spec
    assert kind.model_validate_json(spec.model_dump_json()) == spec
    with pytest.raises(ValidationError, match="tempertaure"):
        kind.model_validate({**spec.model_dump(), "tempertaure": 0.1})


def test_every_field_is_described(name: str) -> None:
    kind = type(make_spec(name).method)
    fields = {k: f for k, f in kind.model_fields.items() if k != "name"}
    assert [k for k, field in fields.items() if not field.description] == []


def test_every_head_has_a_name_and_rows(run: Trainer) -> None:
    heads = run.learner.method.heads
    assert heads
    assert len(set(heads)) == len(heads)
    z_by_head, batch = rows_of(run)
    assert tuple(z_by_head) == heads
    assert all(z.shape[0] == batch.num_items for z in z_by_head.values())


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


def test_the_order_of_items_changes_nothing(name: str, run: Trainer) -> None:
    if name == ORDERED:
        pytest.skip("the order of items is part of the method")
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


def test_temperature_divides_the_similarities(name: str, run: Trainer) -> None:
    """Half the temperature gives the same loss as twice the similarities."""
    method = run.learner.method
    if not isinstance(method, ContrastiveMethod):
        pytest.skip("the method has no temperature that divides all similarities")
    spec = make_spec(name, temperature=method.spec.temperature / 2).method
    sharper = type(method)(spec, method.problem)
    z_by_head, batch = rows_of(run)
    longer = {head: z * 2**0.5 for head, z in z_by_head.items()}
    for head, loss in method(longer, batch).losses.items():
        torch.testing.assert_close(sharper(z_by_head, batch).losses[head], loss)


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
    starts = [ceil(share * STEPS) for share in run.learner.method.phases]
    for start, end in pairwise([0, *starts, STEPS]):
        phase = losses[start:end]
        assert phase[-1] < phase[4] or phase[-1] < phase[0], phase


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


def test_batch_norm_is_known_before_a_network_is_built(run: Trainer) -> None:
    """A spec with chunks and global batch norm can therefore be refused by `plan`."""
    network, spec = run.network, run.spec
    norms = {name for name, m in network.named_modules() if isinstance(m, _BatchNorm)}
    of_encoder = {name for name in norms if name.startswith("encoder.")}
    assert spec.model.encoder.has_batch_norm == bool(of_encoder)
    assert spec.method.has_batch_norm == bool(norms - of_encoder)


def _parameters(run: Trainer) -> list[tuple[str, nn.Parameter]]:
    return [*run.network.named_parameters(), *run.learner.method.named_parameters()]


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


def test_a_cut_training_ends_bit_equal_to_an_uncut_one(
    name: str, run: Trainer, store: Path, tmp_path: Path
) -> None:
    """The training stops in its second epoch; a new object resumes it from the checkpoint."""
    uncut = [progress.metrics for progress in run]
    steps = iter(range(10**6))
    first = make_run(run.spec, store, tmp_path / "cut", should_stop=lambda: next(steps) >= 13)
    list(first)
    assert first.interrupted
    second = make_run(run.spec, store, tmp_path / "cut")
    assert second.step == 13
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
