"""Tests of signals: the first requests a graceful end, the second ends the process."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from mtcon_ray.base.signals import interrupt_on_signals, on_signals, own_signals


@pytest.fixture(autouse=True)
def hangup() -> Iterator[None]:
    """Gives SIGHUP its default effect, also where the tests run under nohup."""
    before = {s: signal.getsignal(s) for s in (signal.SIGHUP, signal.SIGTERM)}
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_first_signal_asks_second_interrupts(number: signal.Signals) -> None:
    asked: list[str] = []
    with on_signals(asked.append):
        os.kill(os.getpid(), number)
        assert asked == [number.name]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert asked == [number.name]


def test_a_closed_terminal_interrupts_once() -> None:
    """Its shell signals the job, and then the kernel the group in its foreground."""
    asked: list[str] = []
    interrupt_on_signals()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGHUP)
    with on_signals(asked.append):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
    assert asked == ["SIGHUP"]


def test_a_hangup_that_was_ignored_stays_ignored() -> None:
    asked: list[str] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    interrupt_on_signals()
    with on_signals(asked.append):
        os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGHUP)
    assert asked == []


def test_a_hangup_does_not_reach_processes_that_were_kept_from_it() -> None:
    with on_signals(lambda name: None), own_signals():
        kept = subprocess.Popen(["sleep", "60"])
    free = subprocess.Popen(["sleep", "60"])
    try:
        for child in (kept, free):
            child.send_signal(signal.SIGHUP)
        assert free.wait(60) == -signal.SIGHUP
        time.sleep(0.05)
        assert kept.poll() is None
    finally:
        for child in (kept, free):
            child.kill()
            child.wait()


def test_a_handler_that_ray_replaces_is_put_back() -> None:
    interrupt_on_signals()
    with own_signals():
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)
