"""Tests of the preparation of a training: what is read, and in which order errors are found."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.data import dataset as dataset_module
from mtcon_ray.errors import DataError, TrackingError
from mtcon_ray.plan.local import this_machine
from mtcon_ray.plan.plan import Plan
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.preparation import prepare
from tests import specs
from tests.data.conftest import TableFiles

pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    return TableFiles(tmp_path)


def spec_of(data: dict[str, Any], **tracking: Any) -> RunSpec:
    own = {"train": {"batch_size": 2}, "tracking": tracking or {"offline": True}}
    return parse_spec({**specs.TINY, "name": "tiny", "data": data, **own})


def prepared(spec: RunSpec, root: Path) -> tuple[Plan, dataset_module.Dataset]:
    uri = spec.tracking.uri or ""
    return prepare(spec, sweep_folder(root, "tiny-1"), this_machine(), uri, Callbacks())[:2]


def counted(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Any]:
    """Returns a list that grows by each call of a function of the data set's module."""
    calls: list[Any] = []
    real: Callable[..., Any] = getattr(dataset_module, name)

    def call(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(dataset_module, name, call)
    return calls


def test_labels_are_read_once(
    files: TableFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = files.spec().model_dump(mode="json")
    reads = counted(monkeypatch, "read_table")
    plan, dataset = prepared(spec_of(data), tmp_path / "root")
    assert len(reads) == 1
    assert plan.num_items["train"] == len(dataset.table.rows("train"))


@pytest.mark.slow
def test_wrong_data_are_refused_before_the_tracking_server_is_asked(tmp_path: Path) -> None:
    nowhere = {"uri": "http://127.0.0.1:9"}  # a port that nothing listens on
    spec = spec_of({"kind": "synthetic", "num_items": 120}, **nowhere)
    with pytest.raises(TrackingError, match="does not answer"):
        prepared(spec, tmp_path)
    large = {"train.batch_size": 500}
    with pytest.raises(DataError, match="batch_size"):
        prepared(with_values(spec, large), tmp_path)
