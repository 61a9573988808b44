"""Requests for a checkpoint: SIGTERM, the end of a node, and a change of the number of workers."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import ray
import torch
from ray.exceptions import RaySystemError

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.errors import PreemptedError
from mtcon_ray.spec import parse_spec
from mtcon_ray.sweep import checkpoint_requests
from mtcon_ray.sweep.checkpoint_requests import (
    RESIZE,
    RESIZE_PATIENCE,
    DrainNotice,
    ResizeNotice,
    ResizeRequest,
    asked_to_end,
    heeding_sigterm,
)
from mtcon_ray.sweep.trial import Assignment, reports


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Returns a function that moves the clock of the requests forward by seconds."""
    now = 1000.0

    def forward(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(checkpoint_requests, "time", SimpleNamespace(monotonic=lambda: now))
    return forward


@pytest.fixture
def sigterms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yields the list of the SIGTERMs that had the process's own effect."""
    got: list[int] = []
    monkeypatch.setattr(checkpoint_requests, "_sigterm", threading.Event())
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    yield got
    signal.signal(signal.SIGTERM, before)


def test_a_node_that_goes_is_answered_by_checkpoints(
    monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    """One at the notice and then every 20 s: the training goes on until the node is gone."""
    drains = False
    looks: list[bool] = []

    def look() -> bool:
        looks.append(drains)
        return drains

    monkeypatch.setattr(checkpoint_requests, "node_drains", look)
    notice = DrainNotice()
    assert [notice(), notice()] == [False, False]
    assert len(looks) == 1, "every look is a request to the head"
    drains = True
    clock(6)
    assert [notice(), notice()] == [True, False]
    clock(10)
    assert not notice()
    clock(11)
    assert notice()


def test_a_head_that_does_not_answer_is_no_notice(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> bool:
        raise RaySystemError("no answer")

    monkeypatch.setattr(checkpoint_requests, "node_drains", fails)
    assert not DrainNotice()()
    assert "no answer" in caplog.text


def test_a_process_outside_ray_starts_none() -> None:
    before = ray.is_initialized()
    assert not DrainNotice()()
    assert ray.is_initialized() is before


def test_the_first_sigterm_is_a_notice_and_the_second_ends(sigterms: list[int]) -> None:
    with heeding_sigterm():
        signal.raise_signal(signal.SIGTERM)
        assert asked_to_end()
        assert sigterms == []
        signal.raise_signal(signal.SIGTERM)
        assert sigterms == [signal.SIGTERM]


def test_after_a_training_a_sigterm_ends_its_process(sigterms: list[int]) -> None:
    with heeding_sigterm():
        pass
    signal.raise_signal(signal.SIGTERM)
    assert sigterms == [signal.SIGTERM]
    assert not asked_to_end()


class Signalled:
    """Stand-in for a training that receives a SIGTERM before its first step."""

    damage = None
    last = None
    at_rung = False
    place: ClassVar[dict[str, str]] = {}

    def __init__(self, *_: Any, should_stop: Callable[[], bool], **__: Any) -> None:
        self._should_stop = should_stop
        self.interrupted = False

    def __iter__(self) -> Iterator[Any]:
        assert not self._should_stop()
        signal.raise_signal(signal.SIGTERM)
        self.interrupted = self._should_stop()
        return iter(())


def test_a_trial_whose_process_was_asked_to_end_starts_again(
    tmp_path: Path, sigterms: list[int]
) -> None:
    """An interrupted trial would wait for the next driver; an error makes Tune start it again."""
    spec = parse_spec({"name": "t", "data": {"kind": "synthetic"}})
    work = Assignment(name="trial-0000", spec=spec, sweep=tmp_path, root=tmp_path, places={})
    run = reports(
        work,
        lambda: cast(Dataset, None),
        device=torch.device("cpu"),
        make_run=cast(Any, Signalled),
    )
    with pytest.raises(PreemptedError, match="SIGTERM"):
        next(run)
    assert sigterms == []


def test_a_resize_waits_for_a_checkpoint(tmp_path: Path) -> None:
    """Each request is served once, by the first checkpoint that is newer."""
    asks, notice = ResizeRequest(tmp_path), ResizeNotice(tmp_path)
    (tmp_path / "last.pt").touch()
    assert not asks()
    assert not asks(), "the checkpoint is older than the request"
    assert notice()
    assert not ready(notice), "the request is served"
    request = tmp_path / RESIZE
    later = request.stat().st_mtime_ns + 1
    os.utime(tmp_path / "last.pt", ns=(later, later))
    assert asks()
    assert not request.exists()
    assert not asks()
    os.utime(request, ns=(later + 1, later + 1))
    assert ready(notice), "a second request is another one"


def ready(notice: ResizeNotice) -> bool:
    """Returns the notice's answer without its pause between two looks."""
    notice._next_look = 0.0
    return notice()


def test_a_resize_waits_no_longer_than_its_patience(
    tmp_path: Path, clock: Callable[[float], None]
) -> None:
    asks = ResizeRequest(tmp_path)
    assert not asks()
    clock(RESIZE_PATIENCE - 1)
    assert not asks()
    clock(2)
    assert asks()


def test_a_trial_without_a_folder_has_nothing_to_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An error here would fail the trial, so the workers change without a checkpoint."""
    assert ResizeRequest(tmp_path / "none")()
    assert "no checkpoint before the workers change" in caplog.text
