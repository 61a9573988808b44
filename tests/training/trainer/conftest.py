"""Fixtures: a small training, its data, and an uninterrupted run of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.training.trainer import Trainer
from tests import specs
from tests.training.trainer.cuts import CPU, STEPS_PER_EPOCH

# Makes a trainer in a folder: with a spec, and with options of Trainer.
Start = Callable[..., Trainer]


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    """Returns a spec of three short epochs of a very small network."""
    labels = {"tasks": ["shape", "colour"], "held_out": ["mark"]}
    data = {"kind": "synthetic", "num_items": 100, **labels}
    train = {"epochs": 3, "batch_size": 16, "precision": "float32"}
    own = {"data": data, "views": {"size": 24}, "method": {"name": "mtcon"}, "train": train}
    return parse_spec({**specs.TINY, "name": "tiny", **own, "evaluate": {"bootstrap": 10}})


@pytest.fixture(scope="module")
def dataset(spec: RunSpec, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Returns a data set of 100 synthetic images."""
    store = tmp_path_factory.mktemp("store")
    return open_dataset(spec.data, view_size=spec.views.size, store=store)


@pytest.fixture(scope="module")
def begin(spec: RunSpec, dataset: Dataset) -> Start:
    """Returns a function that returns a new run in a folder."""

    def begin(folder: Path, run_spec: RunSpec = spec, **options: Any) -> Trainer:
        return Trainer(run_spec, dataset, folder, device=CPU, **options)

    return begin


@pytest.fixture(scope="module")
def start(begin: Start) -> Start:
    """Returns a function that starts or resumes a run in a folder."""

    def start(folder: Path, *spec: RunSpec, **options: Any) -> Trainer:
        run = begin(folder, *spec, **options)
        run.resume()
        return run

    return start


@pytest.fixture
def each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes a checkpoint due at the end of each epoch."""
    monkeypatch.setattr(Trainer, "_save_is_due", lambda run: run.step % STEPS_PER_EPOCH == 0)


@pytest.fixture(scope="module")
def whole(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """Returns a completed run without interruption."""
    run = start(tmp_path_factory.mktemp("whole"))
    list(run)
    return run
