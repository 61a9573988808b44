"""A sweep chooses by the training and validation labels of its tasks alone."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import MODEL_FILE
from mtcon_ray.records.results import SweepResults
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep.run import run_sweep
from mtcon_ray.training.checkpoint import load
from tests import specs
from tests.data.conftest import TableFiles


def trained(files: TableFiles, root: Path) -> SweepResults:
    data = files.spec(held_out=["tone"], split_column="split").model_dump(mode="json")
    search: dict[str, Any] = {
        "space": {"method.temperature": {"loguniform": [0.03, 1]}},
        "num_trials": 4,
        "scheduler": {"name": "asha", "grace": 0.5},
    }
    train = {"epochs": 2, "batch_size": 4}
    raw = {**specs.SHORT, "name": "x", "data": data, "search": search, "train": train}
    return run_sweep(parse_spec(raw), root=root, here=True, callbacks=Callbacks())


@pytest.mark.slow
def test_a_sweep_repeats_exactly_whatever_the_test_and_held_out_labels_say(tmp_path: Path) -> None:
    files = TableFiles(tmp_path)
    true = trained(files, tmp_path / "true")
    test = files.frame["split"] == "test"
    files.frame.loc[test, "kind"] = files.frame.loc[test, "kind"].map({"a": "b", "b": "a"})
    # With missing ones and a new class, so known items, classes and counts differ too.
    tone = files.frame["tone"].to_numpy()[::-1].copy()
    tone[::3], tone[1::3] = "", "invented"
    files.frame["tone"] = tone
    corrupt = trained(files, tmp_path / "corrupt")

    assert [t.params for t in true.trials] == [t.params for t in corrupt.trials]
    before, after = true.history(), corrupt.history()
    chosen = before.columns[before.columns.str.match("trial|epoch|loss|val")]
    pd.testing.assert_frame_equal(before[chosen], after[chosen])
    best, other = true.required_winner(), corrupt.required_winner()
    paths = (true.folder_of(best) / MODEL_FILE, corrupt.folder_of(other) / MODEL_FILE)
    torch.testing.assert_close(*(load(path)["network"] for path in paths), rtol=0, atol=0)
    for name in ("test/accuracy/kind", "heldout/accuracy/tone"):
        assert best.last_metrics[name] != other.last_metrics[name], "evaluation reads the labels"
