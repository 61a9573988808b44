"""A process of a trial that asks the register of running processes."""

from types import SimpleNamespace
from unittest.mock import ANY, Mock

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from mtcon_ray.errors import PreemptedError
from mtcon_ray.sweep import register
from mtcon_ray.sweep.register import SILENT_SECONDS, Line


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Returns a stand-in for the interface of Ray, with a clock and answers that the test sets."""
    ray = Mock(now=1000.0, answers=[])
    ray.wait.side_effect = lambda calls, timeout: (calls if ray.answers else [], [])
    ray.get.side_effect = lambda _: Mock(side_effect=[ray.answers.pop()])()
    monkeypatch.setattr(register, "ray", ray)
    monkeypatch.setattr(register, "time", SimpleNamespace(monotonic=lambda: ray.now))
    return ray


def line(checks: list[int] | None = None) -> Line:
    return Line("r", "trial-0000", lambda: (checks if checks is not None else []).append(1))


def test_a_process_asks_again_after_each_answer_and_looks_twice_a_second(looks: Mock) -> None:
    checks, asked = list[int](), looks.get_actor.return_value.wait.remote
    found = line(checks)
    assert asked.call_count == 1, "it registers at once"
    for _ in range(100):
        looks.now += 0.01
        looks.answers = [False]
        assert not found()
    looks.wait.assert_called_with(ANY, timeout=0)  # training would wait
    assert 2 <= asked.call_count <= 4
    assert len(checks) == asked.call_count - 1
    looks.now, looks.answers = looks.now + 1, [True]
    assert found()
    assert found(), "a stop stays"


def test_a_process_without_a_driver_ends(looks: Mock) -> None:
    """Its driver may be on the other side of a cut: nothing tells of its end."""
    found = line()
    looks.now += 10 * SILENT_SECONDS
    assert not found(), "the register starts after the trial on a busy machine"
    looks.now, looks.answers = looks.now + 1, [False]
    assert not found()
    looks.now += SILENT_SECONDS - 1
    looks.answers = [ActorUnavailableError("it restarts", b"a" * 16)]
    assert not found(), "the register may restart"
    looks.now += 2
    with pytest.raises(PreemptedError, match="the driver of its sweep is gone"):
        found()


def test_a_dead_register_ends_its_processes_at_once(looks: Mock) -> None:
    found = line()
    looks.now, looks.answers = looks.now + 1, [ActorDiedError()]
    with pytest.raises(PreemptedError):
        found()
