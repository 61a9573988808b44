"""The request for a checkpoint: a SIGTERM."""

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest
import torch

from mtcon_ray.data.dataset import Dataset
from mtcon_ray.errors import PreemptedError
from mtcon_ray.spec.run_spec import parse_spec
from mtcon_ray.sweep import checkpoint_requests
from mtcon_ray.sweep.checkpoint_requests import asked_to_end, heeding_sigterm
from mtcon_ray.sweep.trial import Assignment, reports


@pytest.fixture
def sigterms(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Yields the list of the SIGTERMs that had the process's own effect."""
    got: list[int] = []
    monkeypatch.setattr(checkpoint_requests, "_sigterm", threading.Event())
    before = signal.signal(signal.SIGTERM, lambda number, frame: got.append(number))
    yield got
    signal.signal(signal.SIGTERM, before)


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

    last = None
    at_rung = False
    place: ClassVar[dict[str, str]] = {}
    lines: ClassVar[list[str]] = []

    def __init__(self, *_: Any, should_stop: Callable[[], bool], **__: Any) -> None:
        self._should_stop = should_stop
        self.interrupted = False

    def resume(self) -> None:
        """Starts from scratch."""

    def __iter__(self) -> Iterator[Any]:
        assert not self._should_stop()
        signal.raise_signal(signal.SIGTERM)
        self.interrupted = self._should_stop()
        return iter(())


def test_a_trial_whose_process_was_asked_to_end_starts_again(
    tmp_path: Path, sigterms: list[int]
) -> None:
    """An interrupted trial would wait for the next start; an error makes the driver try again."""
    spec = parse_spec({"name": "t", "data": {"kind": "synthetic"}})
    work = Assignment(name="trial-0000", spec=spec, sweep=tmp_path, root=tmp_path, places={})
    run = reports(
        work,
        lambda: cast(Dataset, None),
        device=torch.device("cpu"),
        make_run=cast(Any, Signalled),
    )
    with heeding_sigterm(), pytest.raises(PreemptedError, match="SIGTERM"):
        next(run)
    assert sigterms == []
