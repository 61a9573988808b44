"""Trainings with given values: ends at a plateau, and resumes.

Epochs may get other values when they are trained again, as on a GPU. The event log keeps the first
value of an epoch, so the network in model.pt must belong to that.
"""

import math
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.paths import LAST_FILE
from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.spec.evaluate import selected_epoch
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.training import checkpoint
from mtcon_ray.training.trainer import Trainer
from tests.some import some
from tests.training.trainer.conftest import Start

NAN, VALUE = math.nan, "val/accuracy"


class Resumed:
    """A training whose values are given, and the values that an event log has of it."""

    def __init__(self, begin: Start, path: Path, spec: RunSpec, patch: pytest.MonkeyPatch) -> None:
        self._begin, self._folder, self._patch = begin, path, patch
        self.damage: str | None = None
        self._spec = with_values(spec, {"train.epochs": 6})
        self.log: dict[int, float] = {}

    def train(self, *values: float, epochs: int = 6, **fields: Any) -> Trainer:
        """Trains with these values, the last one for all further epochs; killed after `epochs`."""
        left = chain(values, repeat(values[-1]))
        self._patch.setattr(Evaluation, "validate", lambda _: {VALUE: next(left)})
        run = self._begin(self._folder, with_values(self._spec, fields))
        self.damage = run.resume()
        for progress in run:
            if progress.evaluated and progress.epoch > max(self.log, default=0):
                self.log[progress.epoch] = progress.metrics[VALUE]
            if progress.epoch == epochs:
                break
        return run

    def check(self) -> None:
        """Checks that model.pt is the network that the event log selects."""
        kept = checkpoint.load(self._folder / "model.pt")
        epoch = some(selected_epoch(self.log, "best"))
        assert (kept["epoch"], kept["value"]) == (epoch, self.log[epoch])


BEST: dict[str, Any] = {"evaluate.select": "best"}
PATIENT: dict[str, Any] = {"train.patience": 2}


@pytest.fixture(name="resumed")
def make(begin: Start, spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resumed:
    return Resumed(begin, tmp_path, spec, monkeypatch)


@pytest.mark.parametrize("again", [0.1, 0.9])
@pytest.mark.parametrize("before", [(0.5, 0.4, 0.3, 0.6, 0.2), (0.5, 0.4, 0.3, 0.2, 0.2)])
def test_network_and_value_agree(resumed: Resumed, before: tuple[float, ...], again: float) -> None:
    """They are of one network between checkpoints: killed after epoch 5, before any is due."""
    resumed.train(*before, epochs=5, **BEST)
    assert resumed.train(again, **BEST).done
    assert sorted(resumed.log) == [1, 2, 3, 4, 5, 6]
    resumed.check()


PLATEAUS = [
    (None, 1, (0.5, 0.4), 6),
    (1, 1, (0.5, 0.4), 2),
    (2, 1, (0.2, 0.5, 0.4, 0.5), 4),  # an equal value is no new best one
    (2, 1, (NAN, NAN), 2),
    (2, 1, (0.2, NAN, 0.3, NAN, NAN), 5),
    (1, 2, (0.2, 0.3, 0.1), 6),
    (3, 2, (0.2, 0.1, 0.1), 6),  # 2 epochs at the probe of epoch 4
    (2, 2, (0.2, 0.1), 4),
]


@pytest.mark.parametrize(("patience", "every", "values", "epochs"), PLATEAUS)
def test_a_training_ends_after_so_many_epochs_without_a_new_best_value(
    resumed: Resumed, patience: int | None, every: int, values: tuple[float, ...], epochs: int
) -> None:
    fields: dict[str, Any] = {"train.patience": patience, "evaluate.every": every}
    run = resumed.train(*values, **fields)
    last = some(run.last)
    assert (last.epoch, last.done, run.done, run.interrupted) == (epochs, True, True, False)


def test_killed_at_its_plateau_it_trains_no_more(resumed: Resumed) -> None:
    """The checkpoint is written before the epoch is yielded; the caller records it later."""
    resumed.train(0.5, 0.4, 0.3, epochs=3, **PATIENT)
    assert some(resumed.train(0.9, **PATIENT).last).done
    assert sorted(resumed.log) == [1, 2, 3]


def test_a_plateau_counts_the_values_that_are_recorded(resumed: Resumed) -> None:
    resumed.train(0.4, 0.5, 0.4, 0.6, 0.5, epochs=5, **PATIENT)
    assert resumed.train(0.1, **PATIENT).done
    assert sorted(resumed.log) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("again", [0.1, 0.9])
def test_a_kill_between_model_and_last_costs_neither(
    resumed: Resumed, monkeypatch: pytest.MonkeyPatch, again: float
) -> None:
    """The best epoch is trained again, and the plateau counts from it."""
    save = checkpoint.save

    def killed(path: Path, state: Any, **options: Any) -> None:
        if path.name == LAST_FILE and state["best_epoch"] == 3:
            raise KeyboardInterrupt
        save(path, state, **options)

    fields = BEST | PATIENT
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            resumed.train(0.5, 0.4, 0.6, **fields)
    assert sorted(resumed.log) == [1, 2]
    assert some(resumed.train(again, 0.2, **fields).last).metrics["val/best"] == 0.6
    assert sorted(resumed.log) == [1, 2, 3, 4, 5]
    resumed.check()


@pytest.mark.parametrize("again", [0.1, 0.9])
def test_damage_leaves_the_best_network(resumed: Resumed, tmp_path: Path, again: float) -> None:
    resumed.train(0.5, 0.4, 0.6, epochs=3, **BEST)
    (tmp_path / LAST_FILE).write_bytes(b"")
    resumed.train(again, 0.2, **BEST)
    assert resumed.damage is not None
    assert sorted(resumed.log) == [1, 2, 3, 4, 5, 6]
    resumed.check()


def test_of_equal_bests_the_first_is_selected() -> None:
    """As `model.pt` keeps it."""
    assert selected_epoch({1: 0.5, 2: 0.7, 3: 0.7}, "best") == 2
