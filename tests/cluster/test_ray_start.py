"""The start of a Ray of this machine whose processes die or come late, without a Ray."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import services

from mtcon_ray.cluster import ray_start
from mtcon_ray.cluster.environment import restored_environment
from mtcon_ray.cluster.ray_folders import sessions_folder
from mtcon_ray.cluster.ray_private import AGENT_FILES, GCS_VARIABLE
from mtcon_ray.cluster.ray_start import start_local_ray
from mtcon_ray.errors import MtconError
from tests.processes import run_python

LATE = "did not start within 150 s; its logs are below /"
GCS_DIED = "the GCS of Ray on this machine was ended by signal 9"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray_start, "_processes", {})
    with restored_environment():
        yield tmp_path


def info(code: Callable[[], int | None], killed: list[int]) -> SimpleNamespace:
    """Returns a process with this exit code, as Ray's functions return it."""
    return SimpleNamespace(process=SimpleNamespace(poll=code, kill=lambda: killed.append(1)))


def starts(
    monkeypatch: pytest.MonkeyPatch, code: Callable[[], int | None], killed: list[int] | None = None
) -> list[str | None]:
    """Lets the GCS have this exit code; returns the limits of its starts, as they come."""
    limits: list[str | None] = []

    def start_gcs() -> SimpleNamespace:
        limits.append(os.environ.get(GCS_VARIABLE))
        return info(code, [] if killed is None else killed)

    monkeypatch.setattr(services, "start_gcs_server", start_gcs)
    return limits


def start_gcs() -> None:
    services.start_gcs_server()  # type: ignore[call-arg]


def fail(*_: Any) -> None:
    start_gcs()
    raise RuntimeError("no answer")


def unknown(*_: str) -> None:
    raise RuntimeError("this node is unknown")


@pytest.mark.parametrize("waits_for", ["the node", "the agents"])
@pytest.mark.parametrize(
    ("name", "start"), [("raylet", "start_raylet"), ("GCS", "start_gcs_server")]
)
def test_a_ray_that_loses_a_process_while_it_starts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, start: str, waits_for: str
) -> None:
    starts: list[int] = []
    process = info(lambda: -9 if name == "raylet" else None, [])
    other = info(lambda: -9 if name == "GCS" else None, [])
    monkeypatch.setattr(services, "start_raylet", lambda session_dir, node_id, **ports: process)
    monkeypatch.setattr(services, "start_gcs_server", lambda: other)
    monkeypatch.setattr(services, "get_node", unknown)

    def init() -> None:
        starts.append(1)
        start_gcs()
        services.start_raylet(folder, "node")  # type: ignore[call-arg, arg-type]
        if waits_for == "the node":
            services.get_node("here", "node")

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(MtconError) as error:
        start_local_ray({})
    assert str(error.value) == (
        f"the {name} of Ray on this machine was ended by signal 9 as it started, in 4 tries; its "
        f"logs are below {sessions_folder()}; repeat the command when the machine is less busy"
    )
    assert len(starts) == 4


def test_a_ray_that_dies_once_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = [-9, None]
    limits = starts(monkeypatch, lambda: codes[len(limits) - 1])
    monkeypatch.setattr(ray, "init", lambda: fail() if not limits else start_gcs())
    monkeypatch.setenv(GCS_VARIABLE, "3")
    start_local_ray({})
    assert limits[0] == "150", "the GCS has all the time, whatever holds for a cluster"
    assert len(limits) == 2


def test_the_agents_are_waited_for(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    alive = info(lambda: None, [])
    monkeypatch.setattr(services, "start_raylet", lambda session_dir, node_id, **ports: alive)
    missing = [f"{name}_node" for name in AGENT_FILES]
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: (folder / missing.pop()).touch())
    monkeypatch.setattr(ray_start, "time", clock)
    monkeypatch.setattr(
        ray,
        "init",
        lambda: services.start_raylet(folder, "node"),  # type: ignore
    )
    start_local_ray({})
    assert missing == []


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RuntimeError("Timed out waiting for file gcs_server_port_1"), LATE),
        (TimeoutError("the agents timed out during startup"), LATE),
        (RuntimeError("no answer"), "started on this machine: no answer; its logs are below /"),
        (KeyboardInterrupt("a signal"), "a signal$"),
    ],
)
def test_nothing_is_left_of_a_ray_that_does_not_start(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, told: str
) -> None:
    """No process has died, but all of them would stay."""
    killed: list[int] = []
    limits = starts(monkeypatch, lambda: None, killed)

    def init() -> None:
        start_gcs()
        raise error

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises((MtconError, KeyboardInterrupt), match=told):
        start_local_ray({})
    assert len(limits) == 1
    assert killed == [1]


LOST = """
import subprocess, sys, time
from mtcon_ray.cluster import ray_start

dies = subprocess.Popen(["sh", "-c", sys.argv[1]])
sys.argv[1] == "exit 0" and dies.wait()
stays = subprocess.Popen(["sleep", "600"])
ray_start.LOOK_SECONDS = 0.01
ray_start._processes |= {"raylet": dies, "GCS": stays}
print(stays.pid, flush=True)
with ray_start.ending_with_ray(lambda reason: print(reason, flush=True)):
    time.sleep({"waits": 600, "looks": 0.5, "ends": 0}[sys.argv[2]])
dies.wait(), time.sleep(0.1)
stays.kill()
print("the body has ended")
"""


@pytest.mark.parametrize(
    ("command", "how"),
    [("sleep 2; kill -9 $$", "was ended by signal 9"), ("sleep 2; exit 3", "ended with code 3")],
)
def test_a_process_whose_ray_dies_tells_it_and_ends(command: str, how: str) -> None:
    """A call of Ray may never return."""
    done = run_python("-c", LOST, command, "waits", code=1)
    pid, told = done.stdout.splitlines()
    assert told == f"the raylet of Ray on this machine {how}, and no trial can continue"
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or ") Z " in state.read_text(), "trials would train without a driver"


@pytest.mark.parametrize(("command", "body"), [("sleep 2; exit 1", "ends"), ("exit 0", "looks")])
def test_a_ray_that_ends_before_or_after_the_sweep_ends_nothing(command: str, body: str) -> None:
    """As a local Ray of an earlier sweep in this process, which is on a cluster now."""
    done = run_python("-c", LOST, command, body)
    assert done.stdout.splitlines()[1:] == ["the body has ended"]
