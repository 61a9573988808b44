"""The contract of all registered methods; a new module in methods/ is included automatically."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mtcon_ray import testing
from mtcon_ray.training.step import update
from mtcon_ray.training.trainer import Trainer
from tests.methods.cases import EACH, STATEFUL, TRAINED, VARIANTS, make_spec

# Heads of which no loss compares rows by cosine.
NOT_CONTRASTED = {"embedding", "reconstruction", "noise"}
# In this form the temperature network maps columns of the batch, so the order of items matters.
ORDERED = "amcl-barlow"
GOLDEN = Path(__file__).with_name("golden")

# Learning rates. A learned temperature may fall, which makes gradients larger.
RATES = {"mtcon-temperature": 0.01}
# A phase of LGP in (almost) all steps. Its losses are of different size.
PHASES: dict[str, list[dict[str, Any]]] = {"lgp": [{"masked_share": 0.01}, {"masked_share": 0.99}]}

each = pytest.mark.parametrize("name", EACH)


def slow(names: Iterable[str]) -> list[Any]:
    """Returns test parameters that `make check` leaves out."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


each_with_own_state = pytest.mark.parametrize("name", [*TRAINED, *slow(STATEFUL)])


@pytest.fixture
def run(name: str, store: Path, tmp_path: Path) -> Trainer:
    """Returns a training that has not begun."""
    return testing.start(make_spec(name), store, tmp_path / "run")


@each
def test_spec_is_closed_and_described(name: str) -> None:
    spec = make_spec(name)
    assert spec.method.name == VARIANTS.get(name, {"name": name})["name"]
    testing.check_spec(spec)


@each
def test_no_task_takes_the_name_of_a_head_of_no_task(run: Trainer) -> None:
    method = run.learner.method
    for head in set(method.heads) - set(method.tasks):
        kinds = {**method.problem.kinds, head: "classes"}
        with pytest.raises(ValueError, match=f"got '{head}'; rename the column"):
            method.spec.check(replace(method.problem, kinds=kinds))


@each
def test_losses_and_gradients_are_finite_also_without_one_task_s_labels(run: Trainer) -> None:
    testing.check_losses(run)


@pytest.mark.parametrize("name", [name for name in EACH if name != ORDERED])
def test_the_order_of_items_changes_nothing(run: Trainer) -> None:
    testing.check_order(run)


@each
def test_cosines_of_positive_and_random_pairs_are_gauged(run: Trainer) -> None:
    """Names of gauges contain the name of the head only if there are several."""
    method = run.learner.method
    method.progress = 0.9  # in the contrastive phase of LGP
    z_by_head, batch = testing.rows_of(run)
    output = method(z_by_head, batch)
    heads = [h for h in method.heads if h not in NOT_CONTRASTED and method.spec.name != "xent"]
    suffixes = [""] if len(heads) == 1 else [f"/{head}" for head in heads]
    gauges = {k: v for k, v in output.gauges().items() if k.startswith("cosine")}
    wanted = {f"cosine/{pairs}{suffix}" for pairs in ("positive", "random") for suffix in suffixes}
    assert gauges.keys() == (wanted if heads else set())
    for name, gauge in gauges.items():
        assert -1 <= gauge.item() <= 1
        assert not gauge.requires_grad, name


@pytest.mark.slow
@each_with_own_state
def test_loss_falls_in_twenty_steps_on_one_batch(name: str, store: Path, tmp_path: Path) -> None:
    for fields in PHASES.get(VARIANTS.get(name, {"name": name})["name"], [{}]):
        run = testing.start(make_spec(name, **fields), store, tmp_path / str(fields))
        testing.check_falling(run, RATES.get(name, 0.05))


@each_with_own_state
def test_chunks_give_the_gradient_of_one_graph_through_all_of_them(run: Trainer) -> None:
    testing.check_chunks(run)


@each
def test_batch_norm_is_known_before_a_network_is_built(run: Trainer) -> None:
    testing.check_batch_norm(run)


@pytest.mark.parametrize("name", [*TRAINED, *slow(VARIANTS)])
def test_golden_losses(name: str, run: Trainer, request: pytest.FixtureRequest) -> None:
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
    assert curve == pytest.approx(json.loads(file.read_text()), rel=1e-4, abs=1e-5)


@pytest.mark.slow
@each_with_own_state
def test_a_cut_training_ends_bit_equal_to_an_uncut(name: str, store: Path, tmp_path: Path) -> None:
    testing.check_resume(make_spec(name, steps=5), store, tmp_path)
