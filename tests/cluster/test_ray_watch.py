"""The end of a raylet or GCS of this machine ends what waits for it, without a Ray."""

import threading
import time
from types import SimpleNamespace

import pytest

from mtcon_ray.cluster import ray_watch
from mtcon_ray.cluster.ray_watch import RayWatch
from tests.waiting import PATIENCE_SECONDS


class LocalRay:
    """Stand-in for a Ray of this machine; keeps how often it was shut down."""

    def __init__(self) -> None:
        self.codes: dict[str, int | None] = {"raylet": None, "GCS": None}
        self.reasons: list[str] = []
        self.shutdowns = 0

    def processes(self) -> dict[str, SimpleNamespace]:
        return {n: SimpleNamespace(poll=lambda n=n: self.codes[n]) for n in self.codes}

    def shutdown(self) -> None:
        self.shutdowns += 1


@pytest.fixture
def local_ray(monkeypatch: pytest.MonkeyPatch) -> LocalRay:
    local = LocalRay()
    monkeypatch.setattr(ray_watch, "local_processes", local.processes)
    monkeypatch.setattr("mtcon_ray.cluster.ray_watch.ray.shutdown", local.shutdown)
    monkeypatch.setattr(ray_watch, "LOOK_SECONDS", 0.01)
    return local


def refuse() -> None:
    raise AssertionError("the body ended by itself")


@pytest.mark.parametrize(
    ("name", "code", "how"), [("raylet", -9, "was ended by signal 9"), ("GCS", 1, "ended with")]
)
def test_a_process_that_ends_ends_the_body(
    local_ray: LocalRay, name: str, code: int, how: str
) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    with RayWatch(local_ray.reasons.append, refuse):
        time.sleep(0.05)
        assert local_ray.reasons == []
        local_ray.codes[name] = code
        while time.monotonic() < deadline:
            time.sleep(0.01)
        pytest.fail("the body waits in silence")
    (reason,) = local_ray.reasons
    assert reason.startswith(f"the {name} of Ray on this machine {how}")
    assert local_ray.shutdowns == 1, "trials would write into event logs that are closed"


@pytest.mark.usefixtures("untraced_threads")
def test_a_call_that_never_returns_is_given_up(
    local_ray: LocalRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_watch, "GIVE_UP_SECONDS", 0.05)
    given_up = threading.Event()
    with RayWatch(local_ray.reasons.append, given_up.set):
        # Once the body waits: before that its end would come between two of its lines.
        threading.Timer(0.5, local_ray.codes.update, ({"GCS": -9},)).start()
        given_up.wait(PATIENCE_SECONDS)
    assert given_up.is_set()


def test_other_errors_and_a_body_that_ends_first_are_left_alone(local_ray: LocalRay) -> None:
    with pytest.raises(KeyError), RayWatch(local_ray.reasons.append, refuse):
        raise KeyError
    local_ray.codes["GCS"] = -9
    time.sleep(0.05)
    assert (local_ray.reasons, local_ray.shutdowns) == ([], 0)
