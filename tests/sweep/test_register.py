"""The register of running processes, on a Ray of its own."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError

from mtcon_ray.errors import PreemptedError
from mtcon_ray.sweep import register
from mtcon_ray.sweep.register import NAMESPACE, SILENT_SECONDS, Line, Register
from tests.waiting import wait_until


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

    def get(self, _: int) -> bool:
        answer, self.answer = self.answer, None
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    found = Looks()
    actor = SimpleNamespace(wait=SimpleNamespace(remote=found.ask))
    context = SimpleNamespace(get_actor_id=lambda: "a", current_actor="me")
    fake = SimpleNamespace(
        get_runtime_context=lambda: context, get_actor=lambda *_: actor, wait=found.wait,
        get=found.get,
    )  # fmt: skip
    monkeypatch.setattr(register, "ray", fake)
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


class Process:
    """A process of a trial without its training."""

    def begin(self, name: str, trial: str) -> None:
        self.line = Line(name, trial, lambda: None)

    def asked(self) -> bool:
        return self.line()


@pytest.mark.ray
def test_a_stop_is_heard_and_a_hung_process_is_killed_after_a_restart(held_ray: None) -> None:
    found = Register()
    made: Any = ray.remote(num_cpus=0)(Process)
    first, second = processes = [made.remote() for _ in range(2)]
    for number, process in enumerate(processes):
        ray.get(process.begin.remote(found.name, f"trial-000{number}"))
    assert not any(ray.get([p.asked.remote() for p in processes]))

    ray.kill(ray.get_actor(found.name, NAMESPACE), no_restart=False)
    actor: Any = ray.get_actor(found.name, NAMESPACE)
    wait_until(lambda: not ray.get(actor.processes.remote("x")), "it", not_yet=RayActorError)
    time.sleep(1)
    assert not any(ray.get([p.asked.remote() for p in processes])), "no stop was asked"
    ray.get(second.begin.remote(found.name, "trial-0000"))
    ray.get(second.begin.remote(found.name, "trial-0002"))
    time.sleep(1)

    def ended() -> bool:
        """Kills the first process, which registers again at one of its looks."""
        found.end("trial-0000")
        return has_died(first)

    wait_until(ended, "the killed process")
    assert not has_died(second), "it was reused for another trial"
    found.stop()
    wait_until(lambda: ray.get(second.asked.remote()), "the stop")
    found.end()
    wait_until(lambda: has_died(second), "the other process")


def has_died(process: Any) -> bool:
    try:
        ray.get(process.asked.remote(), timeout=5)
    except ActorDiedError:
        return True
    return False
