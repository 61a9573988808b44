"""Tests of a single tracked training: its event log, resuming, and ways of ending."""

import errno
import json
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.signals import Interrupted
from mtcon_ray.errors import (
    DivergedError,
    ResourceError,
    StorageError,
    SweepError,
)
from mtcon_ray.plan.local import this_machine
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Reported
from mtcon_ray.records.results import load_run
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.training_job import train_run
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.training import checkpoint
from tests.plans import plan_of
from tests.sweep.mirrored_sweep import Notes

pytestmark = pytest.mark.slow

EPOCHS = 3


@pytest.fixture
def spec() -> RunSpec:
    """Returns a spec that trains for seconds on synthetic images, without a tracking server."""
    return parse_spec(
        {
            "name": "tiny",
            "data": {"kind": "synthetic", "num_items": 120, "held_out": ["tilt"]},
            "views": {"size": 16},
            "model": {"encoder": {"name": "small", "width": 4}, "head_dim": 8},
            "train": {"epochs": EPOCHS, "batch_size": 16, "precision": "float32"},
            "evaluate": {"bootstrap": 20},
            "tracking": {"offline": True},
        }
    )


class Killer(Callbacks):
    """Callbacks that sends signals to this process after an epoch."""

    def __init__(self, epoch: int, *signals: signal.Signals) -> None:
        self.epoch = epoch
        self.signals = signals or (signal.SIGTERM,)

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        if epoch == self.epoch:
            for each in self.signals:
                os.kill(os.getpid(), each)


def kinds(folder: Path) -> list[str]:
    """Returns the kinds of a run's events, without artifacts."""
    events = EventLog.read(folder / "spool" / "parent.jsonl")
    return [event.kind for event in events if not isinstance(event, Artifact)]


def test_training_is_recorded_epoch_by_epoch(spec: RunSpec, tmp_path: Path) -> None:
    result = train_run(spec, root=tmp_path, callbacks=Callbacks())
    folder = tmp_path / "runs" / "tiny-1"
    assert (result.name, result.status, result.last_epoch) == ("tiny-1", "FINISHED", EPOCHS)
    assert kinds(folder) == ["start", *["report"] * EPOCHS, "end"]
    last = result.reports[-1][1]
    assert {"val/accuracy", "test/accuracy/shape", "heldout/accuracy/tilt"} <= last.keys()
    assert "test/accuracy/shape" not in result.reports[0][1]
    for _, values in result.reports:
        assert values["system/process_memory_megabytes"] > 100
    assert {p.name for p in folder.iterdir()} == {
        "spec.yaml", "plan.json", "model.pt", "predictions.npz", "spool", "lock"
    }  # fmt: skip
    events = EventLog.read(folder / "spool" / "parent.jsonl")
    sent = [e for e in events if isinstance(e, Artifact) and e.to == "checkpoints"]
    assert [Path(e.path).name for e in sent] == ["model.pt", "predictions.npz"]
    assert train_run(spec, root=tmp_path, callbacks=Callbacks()).name == "tiny-2"


def test_cut_training_goes_on_and_records_each_epoch_once(spec: RunSpec, tmp_path: Path) -> None:
    spec = with_values(spec, {"tracking.system_metrics": False})
    with pytest.raises(Interrupted, match=r"SIGTERM.*--name mine --resume") as stopped:
        train_run(spec, root=tmp_path, name="mine", callbacks=Killer(1))
    assert stopped.value.exit_code == 130
    folder = tmp_path / "runs" / "mine"
    assert load_run(folder).status == "INTERRUPTED"
    result = train_run(spec, root=tmp_path, name="mine", resume=True, callbacks=Callbacks())
    assert result.status == "FINISHED"
    assert [epoch for epoch, _ in result.reports] == [1, 2, 3]
    assert kinds(folder) == ["start", "report", "end", "reopen", "report", "report", "end"]
    told = [
        e.tags for e in EventLog.read(folder / "spool" / "parent.jsonl") if isinstance(e, Reported)
    ]
    place = {"mtcon.device": "CPU", "mtcon.precision": "float32"}
    assert told == [place, place, None], "once for each process"
    whole = train_run(spec, root=tmp_path, name="whole", callbacks=Callbacks())
    cut, uncut = (
        torch.load(tmp_path / "runs" / name / "model.pt", weights_only=True)["network"]
        for name in ("mine", "whole")
    )
    assert all(torch.equal(cut[key], uncut[key]) for key in uncut)
    assert whole.value == result.value
    assert not any(name.startswith("system/") for _, m in whole.reports for name in m)


def test_other_data_are_refused_before_the_record_is_touched(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed data, as when an image is replaced, are refused before the event log is written."""
    folder = tmp_path / "runs" / "tiny-1"
    closed: list[bool] = []
    with monkeypatch.context() as patched:
        patched.setattr(Lifecycle, "close", lambda self, *, stopped: closed.append(stopped))
        with pytest.raises(KeyboardInterrupt):
            train_run(spec, root=tmp_path, callbacks=Killer(1, signal.SIGTERM, signal.SIGINT))
    assert closed == [True], "a second signal waits no longer for MLflow than the first"
    assert load_run(folder).status == "INTERRUPTED"
    before = (folder / "spool" / "parent.jsonl").read_bytes()
    monkeypatch.setattr("mtcon_ray.data.sources.synthetic.VERSION", 0)
    with pytest.raises(SweepError, match=r"'tiny-1' cannot be resumed: its images, labels"):
        train_run(spec, root=tmp_path, resume=True, callbacks=Callbacks())
    assert (folder / "spool" / "parent.jsonl").read_bytes() == before


def test_epoch_that_was_trained_but_not_recorded_is_recorded_at_resume(
    spec: RunSpec, tmp_path: Path
) -> None:
    """The process was killed between an epoch's checkpoint and its event."""
    folder = tmp_path / "runs" / "mine"

    class KeepsLast(Callbacks):
        """Callbacks that copies last.pt, which is deleted at the end of the training."""

        def on_report(self, trial: str, epoch: int, epochs: int, metrics: Any) -> None:
            if epoch == epochs:
                shutil.copy(folder / "last.pt", tmp_path / "kept.pt")

    train_run(spec, root=tmp_path, name="mine", callbacks=KeepsLast())
    shutil.copy(tmp_path / "kept.pt", folder / "last.pt")
    path = folder / "spool" / "parent.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    report = next(i for i, line in enumerate(lines) if f'"epoch": {EPOCHS}' in line)
    path.write_text("".join(lines[:report]))
    result = train_run(spec, root=tmp_path, name="mine", resume=True, callbacks=Callbacks())
    assert result.last_epoch == EPOCHS
    assert "test/accuracy/shape" in result.reports[-1][1]


def test_a_full_disk_leaves_a_training_that_can_be_resumed(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full from the second epoch's checkpoint on; the training can be resumed."""
    spec = with_values(spec, {"evaluate.select": "best"})
    save, saved = checkpoint.save, list[Path]()

    def fills(path: Path, state: Any, **options: Any) -> None:
        saved.append(path)
        if len(saved) > 3:
            raise StorageError.of(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        save(path, state, **options)

    with monkeypatch.context() as full:
        full.setattr(checkpoint, "save", fills)
        with pytest.raises(StorageError, match=r"No space left.*--name mine --resume") as ended:
            train_run(spec, root=tmp_path, name="mine", callbacks=Callbacks())
    assert ended.value.exit_code == 1
    assert len(saved) == 4
    run = load_run(tmp_path / "runs" / "mine")
    assert (run.status, run.last_epoch) == ("INTERRUPTED", 1)
    result = train_run(spec, root=tmp_path, name="mine", resume=True, callbacks=Callbacks())
    assert (result.status, result.last_epoch) == ("FINISHED", EPOCHS)


def test_a_finished_training_is_not_trained_again(spec: RunSpec, tmp_path: Path) -> None:
    """A finished training has no resume state; its event log keeps it from starting again."""
    before = train_run(spec, root=tmp_path, name="mine", callbacks=Callbacks())
    stamp = (tmp_path / "runs" / "mine" / "model.pt").stat().st_mtime_ns
    heard = Notes()
    assert train_run(spec, root=tmp_path, name="mine", resume=True, callbacks=heard) == before
    assert (tmp_path / "runs" / "mine" / "model.pt").stat().st_mtime_ns == stamp
    assert heard.told == ["mine has finished already"]


def test_warnings_of_the_data_are_told_and_recorded(tmp_path: Path) -> None:
    """Warnings of labels, and of an image that turns out to be corrupt, are shown and recorded."""
    images = tmp_path / "images"
    images.mkdir()
    rows = ["image,form,split"]
    for i in range(150):
        split = "train" if i < 110 else "val" if i < 130 else "test"
        pixels = np.full((8, 8, 3), 60 * (i % 2) + i, dtype=np.uint8)
        Image.fromarray(pixels).save(images / f"{i}.png")
        rows.append(f"{i}.png,{'ab'[i % 2]},{split}")
    rows.append("0.png,a,test")
    (images / "147.png").write_bytes(b"no image")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    data = {
        "kind": "table", "csv": str(tmp_path / "labels.csv"), "images": str(images),
        "tasks": ["form"],
    }  # fmt: skip
    raw = {
        "name": "t", "data": data, "views": {"size": 16}, "tracking": {"offline": True},
        "model": {"encoder": {"name": "small", "width": 4}},
        "train": {"epochs": 2, "batch_size": 16}, "evaluate": {"bootstrap": 10},
    }  # fmt: skip
    heard = Notes()
    spec = parse_spec(raw)
    before = plan_of(spec, tmp_path, this_machine()).warnings
    assert any("1 of a sample of 50 images cannot be decoded" in text for text in before)
    train_run(spec, root=tmp_path / "root", callbacks=heard)
    plan = json.loads((tmp_path / "root" / "runs" / "t-1" / "plan.json").read_text())
    told = [note for note in heard.told if note.startswith("warning: ")]
    assert told == [f"warning: {text}" for text in plan["warnings"]]
    assert any("1 images are in more than one split" in note for note in told)
    assert any("1 images cannot be read and are left out, first row 149, 147" in n for n in told)
    assert not any("sample" in note for note in told)
    assert plan["num_items"] == {"train": 110, "val": 20, "test": 20}


@pytest.mark.parametrize(
    "resources", [{"workers": 2}, {"gpus": 2}, {"workers": 1, "gpus": 1}], ids=str
)
def test_what_one_process_cannot_have_is_refused(
    spec: RunSpec, tmp_path: Path, resources: dict[str, Any]
) -> None:
    if resources.get("gpus") == 1 and torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    greedy = with_values(spec, {f"resources.{key}": value for key, value in resources.items()})
    with pytest.raises(ResourceError):
        train_run(greedy, root=tmp_path, callbacks=Callbacks())
    assert list(tmp_path.iterdir()) == []


def test_a_training_whose_record_never_began_is_resumed(spec: RunSpec, tmp_path: Path) -> None:
    """The process ended between writing the spec and the first event."""
    train_run(spec, root=tmp_path, name="mine", callbacks=Callbacks())
    (tmp_path / "runs" / "mine" / "spool" / "parent.jsonl").unlink()
    result = train_run(spec, root=tmp_path, name="mine", resume=True, callbacks=Callbacks())
    assert result.status == "FINISHED"


def test_failure_is_recorded_with_its_reason(spec: RunSpec, tmp_path: Path) -> None:
    class Fails(Callbacks):
        def on_report(self, trial: str, epoch: int, epochs: int, metrics: Any) -> None:
            raise DivergedError("loss is nan")

    with pytest.raises(DivergedError):
        train_run(spec, root=tmp_path, callbacks=Fails())
    result = load_run(tmp_path / "runs" / "tiny-1")
    assert result.status == "FAILED"
    assert result.reason == "DivergedError: loss is nan"
