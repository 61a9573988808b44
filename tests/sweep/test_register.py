"""A process of a trial that asks the register of running processes."""

from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError

from mtcon_ray.errors import PreemptedError
from mtcon_ray.sweep import register
from mtcon_ray.sweep.register import SILENT_SECONDS, Line


class Looks:
    """Stand-in for the interface of Ray, with a clock and an answer that the test sets."""

    def __init__(self) -> None:
        self.now, self.asked = 1000.0, 0
        self.answer: bool | Exception | None = None

    def ask(self, *_: Any) -> int:
        self.asked += 1
        return self.asked

    def wait(self, calls: list[int], timeout: float) -> tuple[list[int], list[int]]:
        assert timeout == 0, "training would wait"
        return (calls, []) if self.answer is not None else ([], calls)

    def get_runtime_context(self) -> SimpleNamespace:
        return SimpleNamespace(get_actor_id=lambda: "a", current_actor="me")

    def get_actor(self, *_: str) -> SimpleNamespace:
        return SimpleNamespace(wait=SimpleNamespace(remote=self.ask))

    def get(self, _: int) -> bool:
        answer, self.answer = self.answer, None
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks()
    monkeypatch.setattr(register, "ray", found)
    monkeypatch.setattr(register, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def line(checks: list[int] | None = None) -> Line:
    return Line("r", "trial-0000", lambda: (checks if checks is not None else []).append(1))


def test_a_process_asks_again_after_each_answer_and_looks_twice_a_second(looks: Looks) -> None:
    checks: list[int] = []
    found = line(checks)
    assert looks.asked == 1, "it registers at once"
    for _ in range(100):
        looks.now += 0.01
        looks.answer = False
        assert not found()
    assert 2 <= looks.asked <= 4
    assert len(checks) == looks.asked - 1
    looks.now, looks.answer = looks.now + 1, True
    assert found()
    assert found(), "a stop stays"


def test_a_process_without_a_driver_ends(looks: Looks) -> None:
    """Its driver may be on the other side of a cut: nothing tells of its end."""
    found = line()
    looks.now += 10 * SILENT_SECONDS
    assert not found(), "the register starts after the trial on a busy machine"
    looks.now, looks.answer = looks.now + 1, False
    assert not found()
    looks.now += SILENT_SECONDS - 1
    looks.answer = ActorUnavailableError("it restarts", b"a" * 16)
    assert not found(), "the register may restart"
    looks.now += 2
    with pytest.raises(PreemptedError, match="the driver of its sweep is gone"):
        found()


def test_a_dead_register_ends_its_processes_at_once(looks: Looks) -> None:
    found = line()
    looks.now, looks.answer = looks.now + 1, ActorDiedError()
    with pytest.raises(PreemptedError):
        found()
