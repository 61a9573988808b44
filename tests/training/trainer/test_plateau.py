"""The end of a training at a plateau, by `train.patience`."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.evaluation.protocol import Evaluation
from mtcon_ray.spec.run_spec import RunSpec, with_values
from tests.training.trainer.conftest import Start
from tests.training.trainer.cuts import STEPS_PER_EPOCH, stop_before

NAN = math.nan
Probe = Callable[[Sequence[float]], None]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Probe:
    """Returns a function that sets the values of all following validation probes, in order."""

    def probe(values: Sequence[float]) -> None:
        left = iter(values)
        monkeypatch.setattr(Evaluation, "validate", lambda _: {"val/accuracy": next(left)})

    return probe


def patient(spec: RunSpec, **fields: Any) -> RunSpec:
    paths = {"patience": "train.patience", "every": "evaluate.every", "select": "evaluate.select"}
    return with_values(spec, {"train.epochs": 6, **{paths[k]: v for k, v in fields.items()}})


@pytest.mark.parametrize(
    ("fields", "values", "epochs"),
    [
        ({"patience": None}, (0.5, 0.4, 0.4, 0.4, 0.4, 0.4), 6),
        ({"patience": 1}, (0.5, 0.4), 2),
        ({"patience": 2}, (0.2, 0.5, 0.4, 0.5), 4),  # an equal value is no new best one
        ({"patience": 2}, (0.2, 0.1, 0.3, 0.2, 0.4, 0.3), 6),
        ({"patience": 2}, (NAN, NAN), 2),
        ({"patience": 2}, (0.2, NAN, 0.3, NAN, NAN), 5),
        ({"patience": 1, "every": 2}, (0.2, 0.3, 0.1), 6),
        ({"patience": 3, "every": 2}, (0.2, 0.1, 0.1), 6),  # 2 epochs at the probe of epoch 4
        ({"patience": 2, "every": 2}, (0.2, 0.1), 4),
    ],
)
def test_a_training_ends_after_so_many_epochs_without_a_new_best_value(
    start: Start, spec: RunSpec, tmp_path: Path, probe: Probe,
    fields: dict[str, Any], values: tuple[float, ...], epochs: int,
) -> None:  # fmt: skip
    probe(values)
    run = start(tmp_path, patient(spec, **fields))
    seen = list(run)
    assert [p.epoch for p in seen] == list(range(1, epochs + 1))
    assert [p.done for p in seen] == [False] * (epochs - 1) + [True]
    assert run.done
    assert not run.interrupted


@pytest.mark.parametrize("step", [1, STEPS_PER_EPOCH, 2 * STEPS_PER_EPOCH + 1])
def test_a_training_that_was_cut_ends_at_the_same_epoch(
    start: Start, spec: RunSpec, tmp_path: Path, probe: Probe, step: int
) -> None:
    """The best epoch before the cut must be restored."""
    probe((0.5, 0.4, 0.3))
    spec = patient(spec, patience=2)
    seen = list(start(tmp_path, spec, should_stop=stop_before(step)))
    seen += list(start(tmp_path, spec))
    assert [p.epoch for p in seen] == [1, 2, 3]
    assert seen[-1].done


def test_killed_at_its_plateau_it_trains_no_more(
    start: Start, spec: RunSpec, tmp_path: Path, probe: Probe
) -> None:
    """The checkpoint is written before the epoch is yielded; the caller records it later."""
    probe((0.5, 0.4))
    spec = patient(spec, patience=1)
    killed = iter(start(tmp_path, spec))
    seen = [next(killed), next(killed)]
    run = start(tmp_path, spec)
    assert run.last == seen[-1]
    assert run.last.done
    assert run.done
    assert list(run) == []
