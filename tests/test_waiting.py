"""Tests of `wait_until`: success, errors, and its messages."""

import subprocess
import sys

import pytest

from tests import waiting
from tests.waiting import wait_until


def test_it_asks_until_there_whatever_says_not_yet() -> None:
    answers = iter([False, OSError, True])
    asked = []

    def ready() -> bool:
        answer = next(answers)
        asked.append(answer)
        if answer is OSError:
            raise OSError
        return bool(answer)

    wait_until(ready, "answer", pause=0)
    assert asked == [False, OSError, True]


def test_other_errors_are_errors() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, "answer", pause=0)


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PATIENCE_SECONDS", 0)
    with pytest.raises(AssertionError, match="no answer in 0 s: the log"):
        wait_until(lambda: False, "answer", told=lambda: "the log", pause=0)


@pytest.mark.parametrize("left_it", [True, False])
def test_what_an_ended_process_left_counts(left_it: bool) -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    if left_it:
        wait_until(lambda: True, "file", process=process)
    else:
        with pytest.raises(AssertionError, match="ended without file"):
            wait_until(lambda: False, "file", process=process, pause=0)
