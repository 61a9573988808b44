"""A trial from which no epoch comes is ended, and only such a trial."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.tune.experiment import Trial

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.paths import trial_log
from mtcon_ray.spec import parse_spec
from mtcon_ray.sweep.stall import StallLimit
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Reported

MINUTES = 2


class Sweep(Callbacks):
    """One running trial without Ray, whose clock is set; keeps notes and killed actors."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **sections: Any) -> None:
        spec = parse_spec({"name": "x", "search": {"stall_minutes": MINUTES}, **sections})
        self.trial = Trial("none", stub=True, config={"trial": "trial-0000"})
        self.trial.status = Trial.RUNNING
        self.trial.temporary_state = cast(Any, SimpleNamespace(ray_actor="actor"))
        self.log = EventLog(trial_log(folder, "trial-0000"))
        self.killed: list[str] = []
        self.notes: list[str] = []
        self.limit = StallLimit(folder, spec, self)
        self._now = 1000.0
        monkeypatch.setattr("mtcon_ray.sweep.stall.time.monotonic", lambda: self._now)
        monkeypatch.setattr("mtcon_ray.sweep.stall.ray.kill", self.killed.append)

    def on_note(self, text: str) -> None:
        self.notes.append(text)

    def wait(self, minutes: float) -> list[str]:
        """Lets so many minutes pass in steps of Tune's loop; returns whom it killed so far."""
        for _ in range(10):
            self._now += 6 * minutes
            self.limit.on_step_end(iteration=1, trials=[self.trial])
        return self.killed

    def result(self, **fields: Any) -> None:
        self.limit.on_trial_result(1, [self.trial], self.trial, fields)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sweep]:
    return lambda **sections: Sweep(tmp_path, monkeypatch, **sections)


def test_a_trial_that_stands_still_is_ended_with_its_reason(make: Callable[..., Sweep]) -> None:
    sweep = make()
    assert sweep.wait(MINUTES) == []
    assert sweep.limit.reason_of("trial-0000") is None
    assert sweep.wait(MINUTES / 2) == ["actor"]
    (note,) = sweep.notes
    assert note.startswith("trial-0000: no new epoch for 2 minutes (search.stall_minutes, ")
    assert str(sweep.limit.reason_of("trial-0000")).startswith("no new epoch for 2 minutes")
    sweep.result(epoch=1)
    assert sweep.limit.reason_of("trial-0000") is None, "it goes on"
    assert sweep.wait(MINUTES) == ["actor"]
    assert sweep.wait(MINUTES) == ["actor", "actor"]


def test_an_epoch_without_a_probe_counts_too(make: Callable[..., Sweep]) -> None:
    sweep = make()
    for epoch in range(1, 5):
        sweep.log.append(Reported(epoch=epoch, metrics={}))
        assert sweep.wait(0.8 * MINUTES) == []


def test_a_trial_that_waits_for_a_node_is_not_ended(make: Callable[..., Sweep]) -> None:
    sweep = make()
    sweep.trial.status = Trial.PENDING
    assert sweep.wait(5 * MINUTES) == []
    sweep.trial.status = Trial.RUNNING
    assert sweep.wait(MINUTES) == []
    sweep.trial.status = Trial.TERMINATED
    assert sweep.wait(5 * MINUTES) == []


def test_workers_that_wait_for_their_nodes_are_not_ended(
    make: Callable[..., Sweep], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = make(resources={"workers": 2})
    assert sweep.wait(5 * MINUTES) == [], "no worker has begun"
    placed: list[str] = []
    monkeypatch.setattr("mtcon_ray.sweep.stall.is_placed", lambda group: group in placed)
    sweep.result(placement_group="ab")
    assert sweep.wait(5 * MINUTES) == [], "a node was lost, and the workers wait for another one"
    placed.append("ab")
    assert sweep.wait(2 * MINUTES) == ["actor"]


def test_without_a_limit_none_is_ended(make: Callable[..., Sweep]) -> None:
    assert make(search={}).wait(1000) == []
