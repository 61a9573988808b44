"""Tests of signals: the first requests a graceful end, the second ends the process."""

import os
import signal

import pytest

from mtcon_ray.signals import on_signals


def test_first_signal_asks_second_interrupts() -> None:
    asked: list[str] = []
    with on_signals(asked.append):
        os.kill(os.getpid(), signal.SIGINT)
        assert asked == ["SIGINT"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert asked == ["SIGINT"]


def test_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with on_signals(lambda name: None):
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
