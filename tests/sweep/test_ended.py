"""The resume of a sweep that has ended with all its trials: neither Ray nor MLflow is asked."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.metrics import MEAN_ACCURACY
from mtcon_ray.paths import journal_file, parent_log, sweep_folder
from mtcon_ray.recorded import load_recorded
from mtcon_ray.spec import RunSpec, dump_spec, with_scheduler, with_values
from mtcon_ray.status import Status
from mtcon_ray.sweep import driver, ended
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import settle
from mtcon_ray.sweep.searcher import tell
from mtcon_ray.sweep.study import named_trials, open_study
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Ended, Reopened, Reported
from tests.sweep.written_sweep import EPOCHS, write_sweep


class Notes(Callbacks):
    """Callbacks that keep the lines of news."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def on_note(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """Returns a sweep without tracking whose three trials have ended; reports are not drawn.

    With the parameter FAILED the last one has failed.
    """
    folder = sweep_folder(tmp_path, "shoes-1")
    write_sweep(folder)
    spec = with_values(load_recorded(folder / "spec.yaml"), {"tracking.offline": True})
    (folder / "spec.yaml").write_text(yaml.safe_dump(dump_spec(spec)))
    study, record = open_study(journal_file(folder), folder.name), SweepRecord(folder, spec)
    last = named_trials(study)[2]
    if getattr(request, "param", None) is Status.FAILED:
        tell(study, last, Status.FAILED, None, "its process was lost")
        record.trial_ended(last, Status.FAILED, "its process was lost")
    else:
        record.spool(last).append(Reopened())
        for epoch in range(2, EPOCHS + 1):
            record.spool(last).append(Reported(epoch=epoch, metrics={MEAN_ACCURACY: 0.5}))
        settle(study, record)
    EventLog(parent_log(folder)).append(Ended(status="FINISHED", tags={}))
    monkeypatch.setattr(ended, "build_report", lambda results, *_, **__: results.report_path)
    return folder


def test_nothing_is_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a sweep that has ended needs no cluster")

    monkeypatch.setattr(driver, "view_of", refuse)
    spec, before = load_recorded(folder / "spec.yaml"), parent_log(folder).read_bytes()
    notes, root = Notes(), folder.parents[1]
    results = driver.run_sweep(spec, root=root, name="shoes-1", resume=True, callbacks=notes)
    assert [t.status for t in results.trials] == ["FINISHED", "PRUNED", "FINISHED"]
    assert notes.texts == ["shoes-1 has ended already, with all its trials"]
    assert parent_log(folder).read_bytes() == before


def interrupt(folder: Path, spec: RunSpec) -> RunSpec:
    EventLog(parent_log(folder)).append(Reopened())
    return spec


def lose_an_epoch(folder: Path, spec: RunSpec) -> RunSpec:
    path = folder / "spool" / "trial-0000.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:1] + lines[2:]))
    return spec


@pytest.mark.parametrize(
    "change",
    [
        interrupt,
        lose_an_epoch,
        lambda folder, spec: with_values(spec, {"storage.keep": 1}),
        lambda folder, spec: with_values(spec, {"tracking.offline": False}),
    ],
)
def test_anything_left_to_do_is_left_to_the_resume(
    folder: Path, change: Callable[[Path, RunSpec], RunSpec]
) -> None:
    spec = load_recorded(folder / "spec.yaml")
    uri = f"sqlite:///{folder}/mlflow.db"
    assert ended.ended_results(folder, with_scheduler(spec), uri, again=True) is not None
    changed = with_scheduler(change(folder, spec))
    assert ended.ended_results(folder, changed, uri, again=True) is None


def test_events_that_mlflow_lacks_are_left_to_the_resume(folder: Path) -> None:
    spec = with_values(load_recorded(folder / "spec.yaml"), {"tracking.offline": False})
    (folder / "spec.yaml").write_text(yaml.safe_dump(dump_spec(spec)))
    uri = f"sqlite:///{folder}/mlflow.db"
    assert ended.ended_results(folder, with_scheduler(spec), uri, again=False) is None


@pytest.mark.parametrize("folder", [Status.FAILED], indirect=True)
def test_failed_trials_are_left_to_do_if_they_shall_be_tried_again(folder: Path) -> None:
    spec, uri = with_scheduler(load_recorded(folder / "spec.yaml")), "sqlite:////none"
    assert ended.ended_results(folder, spec, uri, again=False) is not None
    assert ended.ended_results(folder, spec, uri, again=True) is None
