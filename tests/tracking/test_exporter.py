"""Event logs in TensorBoard's and W&B's own files, read back by their libraries."""

import json
import math
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import wandb
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata, plugin_data_pb2
from wandb.proto import wandb_internal_pb2

from mtcon_ray.errors import SweepError, TrackingError
from mtcon_ray.records.events import Ended, Reopened, Reported, Started
from mtcon_ray.tracking import tensorboard_files, wandb_runs
from mtcon_ray.tracking.exporter import ExportedRun, export_runs
from tests.run_log import RunLog

LOSSES = {1: 3.0, 2: 2.0, 3: 1.0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a sweep's folder with a trial that has ended and one that still trains."""
    folder = tmp_path / "sweeps" / "shoes-1"
    log(folder, "parent").append(
        Started(params={}, tags={}, settings={"method.name": "mtcon", "seed": 0})
    )
    for name, temperature in (("trial-0000", 0.1), ("trial-0001", 0.5)):
        log(folder, name).append(Started(params={"method.temperature": temperature}, tags={}))
        report(folder, name, 1)
    report(folder, "trial-0000", 2, 3)
    log(folder, "trial-0000").append(Ended(status="KILLED", tags={"mtcon.pruned": "true"}))
    return folder


def log(folder: Path, name: str) -> RunLog:
    return RunLog(folder, name)


def report(folder: Path, name: str, *epochs: int) -> None:
    for epoch in epochs:
        values = {"loss": LOSSES[epoch], "val/accuracy": math.nan}
        log(folder, name).append(Reported(epoch=epoch, metrics=values))


def tensorboard(folder: Path, out: Path) -> int:
    return export_runs(folder, partial(tensorboard_files.write_run, out))


def shown(reader: EventAccumulator, tag: str = "loss") -> list[tuple[int, float]]:
    reader.Reload()
    return [(event.step, event.value) for event in reader.Scalars(tag)]


def test_tensorboard_shows_epochs_once_however_often_and_when_they_are_exported(
    folder: Path, tmp_path: Path
) -> None:
    """The second trial trains on, also after an end."""
    (tmp_path / "trial-0001").mkdir()
    own = tmp_path / "trial-0001" / "events.out.tfevents.0.of-the-user"
    own.touch()
    readers = [EventAccumulator(str(tmp_path / f"trial-000{i}")) for i in range(2)]
    assert tensorboard(folder, tmp_path) == 2
    assert shown(readers[0]) == list(LOSSES.items())
    assert shown(readers[1]) == [(1, 3.0)]
    log(folder, "trial-0001").append(Ended(status="KILLED", tags={}))
    log(folder, "trial-0001").append(Reopened())
    report(folder, "trial-0001", 2, 3)
    for _ in range(2):
        tensorboard(folder, tmp_path)
        # Both a TensorBoard that was open meanwhile, and a new one.
        for reader in (readers[1], EventAccumulator(str(tmp_path / "trial-0001"))):
            assert shown(reader) == list(LOSSES.items())
    assert len(list(own.parent.iterdir())) == 1 + 2  # the third command had nothing to write
    (_, nan), *_ = shown(readers[1], "val/accuracy")
    assert math.isnan(nan)
    events = log(folder, "trial-0001").events()
    assert readers[1].Scalars("loss")[0].wall_time == events[1].time_ms / 1000


def test_tensorboard_has_the_settings_of_each_trial(folder: Path, tmp_path: Path) -> None:
    tensorboard(folder, tmp_path)
    reader = EventAccumulator(str(tmp_path / "trial-0001"))
    reader.Reload()
    content = reader.SummaryMetadata(metadata.SESSION_START_INFO_TAG).plugin_data.content
    about = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert about.group_name == "trial-0001"
    assert about.hparams["method.temperature"].number_value == 0.5
    assert about.hparams["method.name"].string_value == "mtcon"
    assert about.hparams["seed"].number_value == 0


def test_tensorboard_drops_what_a_sweep_of_the_same_name_left(folder: Path, tmp_path: Path) -> None:
    tensorboard(folder, tmp_path)
    new = tmp_path / "new" / "sweeps" / "shoes-1"
    for name in ("parent", "trial-0001"):
        log(new, name).append(Started(params={"other": 1}, tags={}))
    report(new, "trial-0001", 2)
    tensorboard(new, tmp_path)
    assert shown(EventAccumulator(str(tmp_path / "trial-0001"))) == [(2, 2.0)]


def test_a_sweep_without_trials_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="has no events of trials to export"):
        tensorboard(tmp_path / "sweeps" / "shoes-1", tmp_path)


Record = getattr(wandb_internal_pb2, "Record")  # noqa: B009, its module has no annotations


def wandb_records(path: Path) -> Iterator[Any]:
    """Yields the records of a W&B file: a log of LevelDB's after a header of 7 bytes."""
    data, at, record = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last of several parts
            yield Record.FromString(record)
            record = b""


def wandb_run(out: Path, run: ExportedRun) -> tuple[Any, list[dict[str, Any]], Any]:
    """Returns the description, the history and the exit of the only file of a run."""
    [path] = (out / "wandb").glob(f"offline-run-*/run-{run.identity}.wandb")
    records = list(wandb_records(path))
    rows = [
        {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    *_, about = (record.run for record in records if record.HasField("run"))
    [end] = [record.exit for record in records if record.HasField("exit")]
    return about, rows, end


def test_wandb_has_a_run_for_each_trial_with_each_epoch_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    opened: dict[str, ExportedRun] = {}

    def write(run: ExportedRun) -> None:
        opened[run.name] = run
        wandb_runs.write_run(tmp_path, "mtcon-ray", run)

    try:
        for _ in range(2):
            export_runs(folder, write)
    finally:
        wandb.teardown()
    about, rows, end = wandb_run(tmp_path, opened["trial-0000"])
    assert (about.project, about.run_group, about.display_name) == (
        "mtcon-ray", "shoes-1", "trial-0000",
    )  # fmt: skip
    config = {item.key: json.loads(item.value_json) for item in about.config.update}
    assert config["method"] == {"name": "mtcon", "temperature": 0.1}
    assert config["seed"] == 0
    assert not about.resume
    assert list(about.tags) == ["stopped early"]
    assert [(row["_step"], row["loss"]) for row in rows] == list(LOSSES.items())
    events = log(folder, "trial-0000").events()
    assert rows[0]["_timestamp"] == events[1].time_ms / 1000
    assert end.exit_code == 0
    _, rows, _ = wandb_run(tmp_path, opened["trial-0001"])
    assert [row["_step"] for row in rows] == [1]


def test_wandb_continues_a_run_that_is_on_its_server(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server would need an account; this stands in for the client."""

    class Run:
        starting_step = 3
        summary: dict[str, str] = {}  # noqa: RUF012
        logged: list[int] = []  # noqa: RUF012

        def log(self, values: dict[str, float], step: int) -> None:
            self.logged.append(step)

        def finish(self, exit_code: int) -> None:
            self.summary["code"] = str(exit_code)

    given: dict[str, Any] = {}

    def init(**options: Any) -> Run:
        given.update(options)
        return Run()

    monkeypatch.setattr("mtcon_ray.tracking.wandb_runs.is_offline", lambda: False)
    monkeypatch.setattr(wandb, "init", init)
    reports = [e for e in log(folder, "trial-0000").events() if isinstance(e, Reported)]
    ended = Ended(status="FAILED", tags={})
    run = ExportedRun("trial-0000", "shoes-1", "a" * 32, {}, 0, tuple(reports), ended)
    wandb_runs.write_run(tmp_path, "mtcon-ray", run)
    assert (given["id"], given["resume"]) == ("a" * 32, "allow")
    assert Run.logged == [3]
    assert Run.summary == {"status": "FAILED", "code": "1"}

    def refuse(**options: Any) -> None:
        raise wandb.errors.UsageError("api_key not configured")

    monkeypatch.setattr(wandb, "init", refuse)
    with pytest.raises(TrackingError, match="to W&B: api_key not configured; log in with `wandb"):
        wandb_runs.write_run(tmp_path, "mtcon-ray", run)
