"""The end of a raylet or GCS of this machine ends what waits for it, without a Ray."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray._private import services

from mtcon_ray.cluster import connection, ray_watch
from mtcon_ray.cluster.ray_folders import sessions_folder
from mtcon_ray.cluster.ray_watch import RayWatch
from mtcon_ray.errors import MtconError
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


@pytest.fixture
def private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps the folder of local Rays below the test's own folder."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))


@pytest.fixture
def untraced_threads() -> Iterator[None]:
    """A traced thread of CPython 3.11 stands still while another one's exception is under way."""
    tracer = threading.gettrace()
    threading.settrace(None)
    yield
    threading.settrace(tracer)


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


@pytest.mark.usefixtures("private_folder")
@pytest.mark.parametrize(
    ("name", "start"), [("raylet", "start_raylet"), ("GCS", "start_gcs_server")]
)
def test_a_ray_that_loses_a_process_while_it_starts_is_not_waited_for(
    local_ray: LocalRay,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    start: str,
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    starts: list[int] = []
    info = SimpleNamespace(process=SimpleNamespace(poll=lambda: -9))
    monkeypatch.setattr(services, start, lambda session_dir, node_id, **ports: info)
    session = sessions_folder() / f"session_1_{os.getpid()}"
    (session / "logs").mkdir(parents=True)
    log = session / "logs" / "raylet.err"
    log.write_text("[C] Check failed: a.has_value() Timed out waiting for file /x/port_1\n")

    def init() -> None:
        starts.append(1)
        assert getattr(services, start)(session, "node") is info
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.01)

    monkeypatch.setattr("mtcon_ray.cluster.connection.ray.init", init)
    with pytest.raises(MtconError) as error:
        connection._init()
    assert str(error.value) == (
        f"the {name} of Ray on this machine was ended by signal 9 as it started, in 4 tries: Timed "
        f"out waiting for file /x/port_1 (log: {log}); repeat the command when the machine is less "
        "busy"
    )
    assert len(starts) == 4


@pytest.mark.usefixtures("private_folder", "untraced_threads")
def test_a_ray_that_dies_once_is_started_again(
    local_ray: LocalRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    codes = [-9, None]

    def start_gcs() -> SimpleNamespace:
        code = codes.pop(0)
        return SimpleNamespace(process=SimpleNamespace(poll=lambda: code))

    monkeypatch.setattr(services, "start_gcs_server", start_gcs)

    def init() -> None:
        services.start_gcs_server()  # type: ignore[call-arg]
        while codes:
            time.sleep(0.01)

    monkeypatch.setattr("mtcon_ray.cluster.connection.ray.init", init)
    connection._init()
    assert codes == []


@pytest.mark.usefixtures("private_folder", "untraced_threads")
def test_a_loss_is_named_rather_than_the_error_that_follows_from_it(
    local_ray: LocalRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch raises while Ray's compiled code waits, which then raises its own error."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    info = SimpleNamespace(process=SimpleNamespace(poll=lambda: -9))
    monkeypatch.setattr(services, "start_gcs_server", lambda: info)
    monkeypatch.setattr(connection, "TRIES", 1)
    silent, other = socket.socketpair()
    silent.settimeout(1.0)

    def init() -> None:
        services.start_gcs_server()  # type: ignore[call-arg]
        silent.recv(1)

    monkeypatch.setattr("mtcon_ray.cluster.connection.ray.init", init)
    with (
        silent,
        other,
        pytest.raises(MtconError, match="the GCS of Ray on this machine was ended by signal 9"),
    ):
        connection._init()
    assert local_ray.shutdowns > 0


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
