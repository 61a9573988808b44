"""The start of a Ray of this machine whose processes die or come late, without a Ray."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray._private import services

from mtcon_ray.cluster import ray_start, ray_watch
from mtcon_ray.cluster.environment import restored_environment
from mtcon_ray.cluster.ray_folders import sessions_folder
from mtcon_ray.cluster.ray_private import GCS_VARIABLE
from mtcon_ray.cluster.ray_start import start_local_ray
from mtcon_ray.errors import MtconError
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("untraced_threads")
LATE = "did not start within 150 s; its logs are below /"
GCS_DIED = "the GCS of Ray on this machine was ended by signal 9"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray_watch, "LOOK_SECONDS", 0.01)
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


@pytest.mark.parametrize(
    ("name", "start"), [("raylet", "start_raylet"), ("GCS", "start_gcs_server")]
)
def test_a_ray_that_loses_a_process_while_it_starts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, start: str
) -> None:
    starts: list[int] = []
    dead = info(lambda: -9, [])
    monkeypatch.setattr(services, start, lambda session_dir, node_id, **ports: dead)

    def init() -> None:
        starts.append(1)
        assert getattr(services, start)(folder, "node") is dead
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(MtconError) as error:
        start_local_ray({})
    assert str(error.value) == (
        f"the {name} of Ray on this machine was ended by signal 9 as it started, in 4 tries; its "
        f"logs are below {sessions_folder()}; repeat the command when the machine is less busy"
    )
    assert len(starts) == 4


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_ray_that_dies_once_is_started_again(
    monkeypatch: pytest.MonkeyPatch, is_watched: bool
) -> None:
    """Ray's own error may come before the watch looks."""
    codes = [-9, None]
    limits = starts(monkeypatch, lambda: codes[len(limits) - 1])

    def init() -> None:
        if len(limits) == 0 and not is_watched:
            fail()
        start_gcs()
        while codes[len(limits) - 1]:
            time.sleep(0.01)

    monkeypatch.setattr(ray_watch, "LOOK_SECONDS", 0.01 if is_watched else PATIENCE_SECONDS)
    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setenv(GCS_VARIABLE, "3")
    start_local_ray({})
    assert limits[0] == "150", "the GCS has all the time, whatever holds for a cluster"
    assert len(limits) == 2


def test_a_loss_is_named_rather_than_the_error_that_follows_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch raises while Ray's compiled code waits, which then raises its own error."""
    starts(monkeypatch, lambda: -9)
    monkeypatch.setattr(ray_start, "TRIES", 1)
    silent, other = socket.socketpair()
    silent.settimeout(1.0)

    def init() -> None:
        start_gcs()
        silent.recv(1)

    monkeypatch.setattr(ray, "init", init)
    with silent, other, pytest.raises(MtconError, match=GCS_DIED):
        start_local_ray({})


def test_no_try_begins_without_the_time_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = starts(monkeypatch, lambda: -9)
    monkeypatch.setattr(ray_start, "START_LIMIT", 19)
    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(MtconError, match=f"{GCS_DIED} .*, in 1 tries; its logs are below"):
        start_local_ray({})
    assert limits == ["19"]


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
