"""Tests of a training in this process: its progress, resuming, and files."""

import math
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from mtcon_ray.errors import CheckpointError, DivergedError, OutOfMemoryError, SpecError
from mtcon_ray.export.trained_network import load_network
from mtcon_ray.methods.base import MethodOutput
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training import checkpoint
from mtcon_ray.training.batches import Batches
from mtcon_ray.training.trainer import Progress, Trainer
from tests.training.trainer.conftest import Start
from tests.training.trainer.cuts import STEPS_PER_EPOCH, assert_same, check_same_end, stop_before

METRICS = {
    *("loss", "loss/shape", "loss/colour", "lr", "images_per_second"),
    *("sigma/shape", "sigma/colour", "weight/shape", "weight/colour"),
    *("cosine/positive/shape", "cosine/positive/colour"),
    *("cosine/random/shape", "cosine/random/colour"),
}
ACCURACIES = {
    *("val/accuracy", "val/accuracy/shape", "val/accuracy/colour"),
    *("val/accuracy_std/shape", "val/accuracy_std/colour"),
}


def test_epochs_yield_what_the_contract_names(start: Start, spec: RunSpec, tmp_path: Path) -> None:
    """Every second epoch and the last one are evaluated."""
    epochs = list(start(tmp_path, with_values(spec, {"evaluate.every": 2})))
    last = checkpoint.load(tmp_path / "last.pt")
    assert last["step"] == 3 * STEPS_PER_EPOCH
    assert last["tally"]["num_steps"] == 0  # means are reset after each epoch
    states = [(p.epoch, p.evaluated, p.done) for p in epochs]
    assert states == [(1, False, False), (2, True, False), (3, True, True)]
    for progress in epochs:
        assert progress.metrics.keys() == METRICS | (ACCURACIES if progress.evaluated else set())
        assert all(math.isfinite(value) for value in progress.metrics.values())
    first = epochs[0].metrics
    # One epoch of linear warm-up to 0.2, by a fifth per step. Sigma and weight are of that step.
    assert first["lr"] == pytest.approx(0.2 * 4 / 5)
    assert first["weight/shape"] == pytest.approx(first["sigma/shape"] ** -2)
    assert first["weight/shape"] != 1


def test_gauges_are_asked_for_once_an_epoch_and_kept_where_finite(
    start: Start, spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gauges are computed once per epoch, and non-finite ones are dropped.

    A batch without positives has no cosine of positives.
    """
    found = {"cosine/random": torch.tensor(0.25), "cosine/positive": torch.tensor(math.nan)}
    monkeypatch.setattr(MethodOutput, "gauges", gauges := Mock(return_value=found))
    values = next(iter(start(tmp_path, spec))).metrics
    gauges.assert_called_once()
    assert values["cosine/random"] == 0.25
    assert "cosine/positive" not in values


def test_a_run_cut_often_ends_bit_equal(start: Start, whole: Trainer, tmp_path: Path) -> None:
    """Cut before the first step, between epochs, within epochs, and before the last step."""
    epochs: list[Progress] = []
    for steps in (0, 4, 1, 3, 3, 3):
        run = start(tmp_path, should_stop=stop_before(steps))
        epochs += list(run)
        assert run.interrupted != run.done
    check_same_end(run, epochs, whole)


def test_a_finished_run_yields_nothing_more_but_remembers(start: Start, whole: Trainer) -> None:
    """`last` is restored, so that an epoch that was saved but not recorded can be recorded."""
    run = start(whole.folder)
    assert (list(run), run.last, run.report()) == ([], whole.last, whole.report())
    untested = start(whole.folder, with_values(whole.spec, {"evaluate.test": False}))
    assert (list(untested), untested.report()) == ([], {})


def test_a_checkpoint_of_complex_numbers_is_refused(whole: Trainer, tmp_path: Path) -> None:
    state = checkpoint.load(whole.folder / "model.pt")
    first = next(iter(state["network"]))
    state["network"][first] = state["network"][first] + 0j
    checkpoint.save(tmp_path / "model.pt", state)
    with pytest.raises(CheckpointError, match="must be of real numbers"):
        load_network(tmp_path / "model.pt")


@pytest.mark.parametrize(("every", "left"), [(STEPS_PER_EPOCH, STEPS_PER_EPOCH), (5, 0)])
def test_a_diverged_network_leaves_the_checkpoint_before_it_and_replaces_none(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int, left: int
) -> None:
    """Divergence in step 5, simulated by an infinite weight, also where a checkpoint is due."""
    monkeypatch.setattr(Trainer, "_save_is_due", lambda run: run.step % every == 0)
    run = start(tmp_path)
    epochs = iter(run)
    next(epochs)
    with torch.no_grad():
        next(run.network.parameters()).fill_(math.inf)
    with pytest.raises(DivergedError, match=r"at step 5; lower train\.lr"):
        next(epochs)
    assert (tmp_path / "last.pt").exists() == (left > 0)
    assert start(tmp_path).step == left


def test_too_little_memory_names_batch_and_way_out(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's out-of-memory error becomes one that names the batch size and the way out."""
    run = start(tmp_path)
    monkeypatch.setattr(Batches, "chunks", Mock(side_effect=torch.OutOfMemoryError("tried 2 GiB")))
    message = r"batch_size 16 x 2 views of 24 .*set train.chunk_size"
    with pytest.raises(OutOfMemoryError, match=message):
        next(iter(run))


def test_a_batch_larger_than_data_is_refused(start: Start, spec: RunSpec, tmp_path: Path) -> None:
    """The error comes before anything is written."""
    with pytest.raises(SpecError, match=r"must be at most the 70 training examples, got 71"):
        start(tmp_path / "new", with_values(spec, {"train.batch_size": 71}))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"train.optimizer": "adam", "train.lr_schedule": "exponential", "train.lr": 0.005},
        {"train.optimizer": "lars", "train.lr": 20},
        {"train.precision": "float16"},
        {"train.ema": 0.9},
        {"train.chunk_size": 6, "model.batch_norm": "local"},
    ],
    ids=["adam", "lars", "float16", "ema", "chunks"],
)
def test_a_cut_training_with_other_state_ends_bit_equal(
    spec: RunSpec, start: Start, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Moments, step counts, the mark of the adapted group and the loss scale are restored."""
    spec = with_values(spec, {"train.epochs": 2, "evaluate.every": 2, **changes})
    whole = start(tmp_path / "whole", spec)
    list(whole)
    list(start(tmp_path / "cut", spec, should_stop=stop_before(STEPS_PER_EPOCH + 1)))
    again = start(tmp_path / "cut", spec)
    assert again.step == STEPS_PER_EPOCH + 1
    if again.learner.scaler.is_enabled():
        assert 1 < again.learner.scaler.get_scale() < 2.0**16, "it was halved before the cut"
    list(again)
    assert_same(again.learner.state(), whole.learner.state())
    kept = checkpoint.load(tmp_path / "cut" / "model.pt")["network"]
    assert_same(kept, again.network.state_dict())
    assert_same(kept, whole.network.state_dict())
    assert (again.network is not again.learner.network) == ("train.ema" in changes)
