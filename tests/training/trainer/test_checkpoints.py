"""Tests of model.pt, of when last.pt is written, and of resuming from damaged checkpoints."""

import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from mtcon_ray.base.paths import LAST_FILE
from mtcon_ray.errors import CheckpointError, PreemptedError
from mtcon_ray.evaluation.predictions import load_predictions
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.export.trained_network import load_network
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training import checkpoint, trainer
from mtcon_ray.training.distributed import Ranks
from mtcon_ray.training.step import Update
from mtcon_ray.training.trainer import Trainer
from tests.some import some
from tests.training.trainer import cuts
from tests.training.trainer.conftest import Start


def test_the_kept_network_is_of_the_last_epoch(whole: Trainer) -> None:
    """model.pt holds the last epoch's network, and all that an evaluation needs."""
    kept = checkpoint.load(whole.folder / "model.pt")
    value = some(whole.last).metrics["val/accuracy"]
    assert (kept["epoch"], kept["value"]) == (3, value)
    assert kept["classes"].keys() == {"shape", "colour", "mark"}
    assert kept["fingerprint"] == whole.dataset.fingerprint
    cuts.assert_same(kept["network"], whole.network.state_dict())
    cuts.assert_same(kept["method"], dict(whole.learner.method.named_parameters()))
    assert all(value.abs().min() > 0 for value in kept["method"].values()), "as at the start"


@pytest.mark.parametrize("select", ["last", "best"])
def test_the_stored_predictions_are_those_of_the_reported_accuracies(
    start: Start, spec: RunSpec, tmp_path: Path, select: str
) -> None:
    """A resumed process with nothing left to train replaces an unreadable file of predictions."""
    spec = with_values(spec, {"evaluate.select": select})
    list(start(tmp_path, spec))
    (tmp_path / "predictions.npz").write_bytes(b"of a killed process")
    run = start(tmp_path, spec)
    values = run.report()
    found = some(load_predictions(tmp_path / "predictions.npz"))
    with np.load(tmp_path / "predictions.npz") as file:
        assert file["fingerprint"] == run.dataset.fingerprint
    assert found.keys() == {("test", "shape"), ("test", "colour"), ("heldout", "mark")}
    for (split, label), each in found.items():
        assert np.isin(each.rows, run.dataset.table.rows("test")).all()
        assert (run.dataset.table.labels[label][each.rows] == each.truth).all()
        correct = (each.predicted == each.truth).mean()
        assert correct == pytest.approx(values[f"{split}/accuracy/{label}"])
    stored, network = load_network(tmp_path / "model.pt")
    network = network.to(memory_format=torch.channels_last)
    assert values == pytest.approx(Evaluation(network, run.dataset, stored, cuts.CPU).report())


SAVES = [
    (30, 0.125, [12]), (5, 0.125, [5, 10, 12]), (0, 0, [*range(1, 13)]),
    (0, 0.125, [1, 4, 7, 10, 12]), (5, 0.5, [5, 12]),
]  # fmt: skip


@pytest.mark.parametrize(("seconds", "save", "saved"), SAVES)
def test_a_checkpoint_is_written_when_both_times_have_passed(
    start: Start, spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    seconds: float, save: float, saved: list[int],
) -> None:  # fmt: skip
    """Steps take a second. Between two saves lie 20 times the duration of a save.

    The time of saves is no time of training.
    """
    now, steps = 0.0, list[int]()
    train_step, write = Trainer._train_step, checkpoint.save

    def trains(run: Trainer) -> Update:
        nonlocal now
        now += 1
        return train_step(run)

    def saves(path: Path, state: Any, **options: Any) -> None:
        nonlocal now
        if path.name == LAST_FILE:
            now += save
            steps.append(state["step"])
        write(path, state, **options)

    monkeypatch.setattr(trainer, "perf_counter", lambda: now)
    monkeypatch.setattr(Trainer, "_train_step", trains)
    monkeypatch.setattr(checkpoint, "save", saves)
    run = start(tmp_path, with_values(spec, {"train.checkpoint_seconds": seconds}))
    rates = [progress.metrics["images_per_second"] for progress in run]
    assert steps == saved
    assert rates == pytest.approx([16] * 3)


def test_only_the_first_worker_writes_or_waits_for_its_device(
    start: Start, spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = start(tmp_path, with_values(spec, {"train.checkpoint_seconds": 0}))
    monkeypatch.setattr(trainer, "perf_counter", lambda: 1e9)  # any checkpoint is due
    assert run._save_is_due()
    run.ranks = Ranks(1, 2)
    assert not run._save_is_due()
    run._save_last()
    assert list(tmp_path.iterdir()) == []


def test_no_training_after_a_rung_s_epoch(start: Start, whole: Trainer, tmp_path: Path) -> None:
    cut = start(tmp_path, until=2)
    assert not cut.at_rung
    epochs = list(cut)
    assert [p.epoch for p in epochs] == [1, 2]
    assert (cut.interrupted, cut.at_rung, cut.step) == (True, True, 2 * cuts.STEPS_PER_EPOCH)
    run = start(tmp_path)
    assert cuts.untimed(some(run.last)) == cuts.untimed(epochs[-1])
    cuts.check_same_end(run, [*epochs, *run], whole)


@pytest.mark.usefixtures("each_epoch")
def test_a_damaged_checkpoint_costs_an_epoch_and_says_so(
    begin: Start, start: Start, whole: Trainer, tmp_path: Path
) -> None:
    """The previous checkpoint is used, and a damaged last.pt never replaces it.

    The run is interrupted once more, before the epoch's end, to test the latter.
    """
    killed = iter(start(tmp_path))
    epochs = [next(killed), next(killed)]
    (tmp_path / "last.pt").write_bytes(bytes(5000))
    run = begin(tmp_path, should_stop=cuts.stop_before(1))
    assert re.search(r"last\.pt is not a whole file.* continues after epoch 1", some(run.resume()))
    list(run)
    assert checkpoint.load(tmp_path / "last.previous.pt")["step"] == cuts.STEPS_PER_EPOCH
    run = begin(tmp_path)
    assert run.resume() is None
    again = list(run)
    assert cuts.untimed(again[0]) == cuts.untimed(epochs[1])
    cuts.check_same_end(run, [epochs[0], *again], whole)


def test_a_lost_best_network_restarts_training(begin: Start, spec: RunSpec, tmp_path: Path) -> None:
    """The best epoch might not be trained again, so the training starts from scratch."""
    best = with_values(spec, {"evaluate.select": "best"})
    list(begin(tmp_path, best, should_stop=cuts.stop_before(2 * cuts.STEPS_PER_EPOCH)))
    (tmp_path / "model.pt").write_bytes(b"")
    run = begin(tmp_path, best)
    damage = some(run.resume())
    assert run.step == 0
    assert re.search(r"model\.pt is not a whole file.*starts from scratch", damage)
    list(run)
    assert run.report()


def test_a_checkpoint_with_values_of_another_kind_is_refused(start: Start, tmp_path: Path) -> None:
    list(start(tmp_path, should_stop=cuts.stop_before(1)))
    path = tmp_path / "last.pt"
    state = checkpoint.load(path)
    changes: tuple[dict[str, Any], ...] = (
        {"spec": 5}, {"spec": "[" * 5000}, {"spec": "[1]"}, {"step": "x"}, {"tally": 1},
        {"last": 7}, {"network": {}}, {"optimizer": 5}, {"method": None},
    )  # fmt: skip
    for change in changes:
        checkpoint.save(path, {**state, **change})
        with pytest.raises(CheckpointError, match=r"last\.pt is no checkpoint of mtcon-ray"):
            start(tmp_path)
    del state["optimizer"]
    checkpoint.save(path, state)
    with pytest.raises(CheckpointError, match="it lacks 'optimizer'"):
        start(tmp_path)


@pytest.mark.usefixtures("each_epoch")
@pytest.mark.parametrize("file", ["model.pt", LAST_FILE])
def test_a_process_that_may_not_write_any_more_replaces_no_file(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """A later driver takes over after the first epoch, before a write of this file."""
    save = Mock(wraps=checkpoint.save)

    def check() -> None:
        if save.call_count > 2 and save.call_args.args[0].name == file:
            raise PreemptedError("taken over")

    monkeypatch.setattr(checkpoint, "save", save)
    run = start(tmp_path, check=check)
    next(iter(run))
    first = (tmp_path / file).read_bytes()
    with pytest.raises(PreemptedError):
        list(run)
    assert (tmp_path / file).read_bytes() == first
