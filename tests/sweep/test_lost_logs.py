"""Event logs of ended trials that are lost or cut: the resume tells it and goes on."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.paths import journal_file, trial_log
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.records.results import load_sweep
from mtcon_ray.sweep.audit import what_is_lost
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.resume import settle
from mtcon_ray.sweep.study import open_study
from tests.sweep.written_sweep import write_sweep


def without_tail(folder: Path) -> None:
    """The log of the finished trial ends after its first epoch."""
    path = trial_log(folder, "trial-0000")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda folder: trial_log(folder, "trial-0000").unlink(), "missing: its metrics are lost"),
        (lambda folder: trial_log(folder, "trial-0000").write_text(""), "beginning is missing"),
        (without_tail, "it ends before these epochs of the study: 2, 3"),
    ],
)
def test_a_finished_trial_with_a_lost_log_stays_finished_and_is_told(
    root: Path, damage: Callable[[Path], Any], told: str
) -> None:
    """The resume tells what is lost before it ends the log, and all commands afterwards."""
    folder = root / "sweeps" / "shoes-1"
    write_sweep(folder)
    damage(folder)
    assert any(told in text for text in what_is_lost(folder))
    record = SweepRecord(folder, load_recorded(folder / "spec.yaml"))
    settle(open_study(journal_file(folder), folder.name), record)
    (lost,) = load_sweep(folder).lost
    assert re.match(r"trial-0000: it has finished with [01] of 3 epochs: the metrics of the", lost)
