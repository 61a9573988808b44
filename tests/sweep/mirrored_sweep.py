"""A bucket that is a folder, and steps of a sweep that is mirrored to it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.status import Status
from mtcon_ray.sweep.audit import Audit
from mtcon_ray.training import checkpoint
from tests.sweep.simulated import line
from tests.sweep.written_sweep import record_of, save_model, value

BUCKET = "s3://bucket/deep/"
URL = BUCKET + "shoes-1"


class FolderStore(SubTreeFileSystem):  # type: ignore[misc]
    """Object store whose bucket is a folder; `before` is called with each object's path."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), LocalFileSystem())
        self.folder = folder
        self.written: list[str] = []
        self.before: Callable[[str], None] = lambda path: None

    def open_output_stream(self, path: str, **options: Any) -> Any:
        self.before(path)
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        self.written.append(path.removeprefix("bucket/deep/shoes-1/"))
        return super().open_output_stream(path, **options)


class Notes(Callbacks):
    def __init__(self) -> None:
        self.told: list[str] = []

    def on_note(self, text: str) -> None:
        self.told.append(text)


def problems(folder: Path) -> list[str]:
    audit = Audit(folder)
    return [f"{f.where}: {f.problem}" for f in (*audit.records(), *audit.files())]


def contents(folder: Path) -> dict[str, bytes]:
    files = (p for p in folder.rglob("*") if p.is_file() and p.name != "lock")
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in files}


def train_on(folder: Path, epochs: int, *, ends: bool = True) -> None:
    """Trains the last trial until this epoch, and may end it if that is its last one."""
    record = record_of(folder)
    (trial,) = (trial for trial in record.trials.values() if trial.is_open)
    record.reopen(trial)
    place = record.checkpoints(trial)
    for epoch in range(trial.last_epoch + 1, epochs + 1):
        own = record.spec.trial(trial.params)
        save_model(place, own, epoch, value(2, epoch), "model.pt")
        checkpoint.save(
            place / "last.pt", {"best": value(2, epoch), "step": epoch},
            previous=place / "last.previous.pt",
        )  # fmt: skip
        record.report(trial, [line(trial.name, epoch, value(2, epoch))])
    if ends and epochs == trial.epochs:
        record.end_trial(trial, Status.FINISHED, None)
        record.tidy(trial)
