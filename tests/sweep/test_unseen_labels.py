"""A sweep chooses by the training and validation labels of its tasks alone."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

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
    raw = {
        **specs.SHORT, "name": "x", "data": data, "search": search, "tracking": {"offline": True},
        "train": {"epochs": 2, "batch_size": 4}, "evaluate": {"bootstrap": 20},
    }  # fmt: skip
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
    networks = []
    for results in (true, corrupt):
        folder = results.folder_of(results.required_winner())
        network = load(folder / MODEL_FILE)["network"]
        networks.append({name: value.tolist() for name, value in network.items()})
    assert networks[0] == networks[1]
    scores = [results.required_winner().last_metrics for results in (true, corrupt)]
    for name in ("test/accuracy/kind", "heldout/accuracy/tone"):
        assert scores[0][name] != scores[1][name], "the evaluation reads the labels"
