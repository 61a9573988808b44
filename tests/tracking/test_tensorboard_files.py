"""Event logs in TensorBoard's files, read back by its library."""

import math
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata, plugin_data_pb2

from mtcon_ray.errors import SweepError
from mtcon_ray.records.events import Ended, Reopened, Started
from mtcon_ray.tracking.tensorboard_files import export_runs
from tests.run_log import RunLog

LOSSES = {1: 3.0, 2: 2.0, 3: 1.0}
TAGS = {"mtcon.epochs": "3", "mtcon.seed": "0"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a sweep's folder with a trial that has ended and one that still trains."""
    folder = tmp_path / "sweeps" / "shoes-1"
    start = Started(params={}, tags={}, settings={"method.name": "mtcon", "seed": 0})
    RunLog(folder, "parent").append(start)
    for name, temperature in (("trial-0000", 0.1), ("trial-0001", 0.5)):
        RunLog(folder, name).append(Started(params={"method.temperature": temperature}, tags=TAGS))
        report(folder, name, 1)
    report(folder, "trial-0000", 2, 3)
    RunLog(folder, "trial-0000").append(Ended(status="KILLED", tags={"mtcon.pruned": "true"}))
    return folder


def report(folder: Path, name: str, *epochs: int) -> None:
    for epoch in epochs:
        RunLog(folder, name).report(epoch, **{"loss": LOSSES[epoch], "val/accuracy": math.nan})


def shown(reader: EventAccumulator, tag: str = "loss") -> list[tuple[int, float]]:
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def test_tensorboard_shows_exported_epochs_once(folder: Path, tmp_path: Path) -> None:
    """The second trial trains on, also after an end."""
    (tmp_path / "trial-0001").mkdir()
    own = tmp_path / "trial-0001" / "events.out.tfevents.0.of-the-user"
    own.touch()
    readers = [EventAccumulator(str(tmp_path / f"trial-000{i}")) for i in range(2)]
    assert export_runs(folder, tmp_path) == 2
    assert shown(readers[0]) == list(LOSSES.items())
    assert shown(readers[1]) == [(1, 3.0)]
    RunLog(folder, "trial-0001").append(Ended(status="KILLED", tags={}))
    RunLog(folder, "trial-0001").append(Reopened())
    report(folder, "trial-0001", 2, 3)
    for _ in range(2):
        export_runs(folder, tmp_path)
        # Both a TensorBoard that was open meanwhile, and a new one.
        for reader in (readers[1], EventAccumulator(str(tmp_path / "trial-0001"))):
            assert shown(reader) == list(LOSSES.items())
    assert len(list(own.parent.iterdir())) == 1 + 2  # the third command had nothing to write
    (_, nan), *_ = shown(readers[1], "val/accuracy")
    assert math.isnan(nan)
    events = RunLog(folder, "trial-0001").events()
    assert readers[1].Scalars("loss")[0].wall_time == events[1].time_ms / 1000


def test_tensorboard_has_the_settings_of_each_trial(folder: Path, tmp_path: Path) -> None:
    export_runs(folder, tmp_path)
    reader = EventAccumulator(str(tmp_path / "trial-0001"))
    reader.Reload()
    content = reader.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    about = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert about.group_name == "trial-0001"
    assert about.hparams["method.temperature"].number_value == 0.5
    assert about.hparams["method.name"].string_value == "mtcon"
    assert about.hparams["seed"].number_value == 0


def test_tensorboard_drops_what_a_sweep_of_the_same_name_left(folder: Path, tmp_path: Path) -> None:
    export_runs(folder, tmp_path)
    new = tmp_path / "new" / "sweeps" / "shoes-1"
    for name in ("parent", "trial-0001"):
        RunLog(new, name).append(Started(params={"other": 1}, tags=TAGS))
    report(new, "trial-0001", 2)
    export_runs(new, tmp_path)
    assert shown(EventAccumulator(str(tmp_path / "trial-0001"))) == [(2, 2.0)]


def test_a_sweep_without_trials_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="has no events of trials to export"):
        export_runs(tmp_path / "sweeps" / "shoes-1", tmp_path)
