"""The preparation of a training: what is read, and in which order errors are found."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.data.labels import read_table
from mtcon_ray.errors import DataError, SpecError, TrackingError
from mtcon_ray.plan.local import this_machine
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.preparation import check_data, prepare
from mtcon_ray.tracking.mlflow_server import own_database
from tests import specs
from tests.data.conftest import TableFiles

pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")


def spec_of(data: dict[str, Any], tracking: dict[str, Any]) -> RunSpec:
    own = {"train": {"batch_size": 2}, "tracking": tracking}
    return parse_spec({**specs.TINY, "name": "tiny", "data": data, **own})


def prepared(spec: RunSpec, root: Path) -> Any:
    uri = spec.tracking.uri or ""
    return prepare(spec, sweep_folder(root, "tiny-1"), this_machine(), uri, Callbacks())


def test_labels_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(wraps=read_table)
    monkeypatch.setattr("mtcon_ray.data.dataset.read_table", read)
    data = TableFiles(tmp_path).spec().model_dump(mode="json")
    plan, dataset, _ = prepared(spec_of(data, {"offline": True}), tmp_path / "root")
    assert read.call_count == 1
    assert plan.num_items["train"] == len(dataset.table.rows("train"))


def test_the_users_own_file_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can refuse it, and importing MLflow takes seconds."""
    asked = Mock(side_effect=AssertionError)
    monkeypatch.setattr("mtcon_ray.sweep.preparation.check_server", asked)
    tracking = {"uri": own_database(tmp_path)}
    prepared(spec_of({"kind": "synthetic", "num_items": 120}, tracking), tmp_path)


def test_each_listed_fraction_has_a_whole_batch(tmp_path: Path) -> None:
    spec = spec_of({"kind": "synthetic", "num_items": 120}, {"offline": True})
    searched = {"search.space": {"data.fraction": {"grid": [1, 0.1]}}, "train.batch_size": 10}
    with pytest.raises(DataError, match=r"8 examples, got 10; .* raise data\.fraction 0\.1"):
        check_data(with_values(spec, searched), tmp_path)
    planned = check_data(with_values(spec, {**searched, "train.batch_size": 8}), tmp_path).table
    assert len(planned.rows("train")) == 84, "the plan is of the spec itself"
    unlisted = with_values(spec, {"search.space": {"data.fraction": {"uniform": [0.1, 1]}}})
    with pytest.raises(SpecError, match=r"data\.fraction: search\.space must list at most 64"):
        check_data(unlisted, tmp_path)


@pytest.mark.slow
def test_mlflow_is_asked_after_the_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And before the images are opened."""
    opened = Mock(side_effect=AssertionError)
    monkeypatch.setattr("mtcon_ray.sweep.preparation.open_dataset", opened)
    nowhere = {"uri": "http://127.0.0.1:9"}  # a port that nothing listens on
    spec = spec_of({"kind": "synthetic", "num_items": 120}, nowhere)
    with pytest.raises(TrackingError, match="does not answer"):
        prepared(spec, tmp_path)
    with pytest.raises(DataError, match="batch_size"):
        prepared(with_values(spec, {"train.batch_size": 500}), tmp_path)
