"""The start of a Ray of this machine whose processes die or come late, without a Ray."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import ray
from ray._private import services

from mtcon_ray.cluster import ray_private, ray_start
from mtcon_ray.cluster.environment import restored_environment, sessions_folder
from mtcon_ray.cluster.ray_private import AGENT_FILES, GCS_VARIABLE
from mtcon_ray.cluster.ray_start import start_local_ray
from mtcon_ray.errors import MtconError
from tests.waiting import wait_until

GCS, LATE = "GCS", "did not start within 150 s; its logs are below /"


class Fake:
    """Ray's functions that start processes, and these processes."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.limits = folder, list[str]()
        self.processes = {name: Mock(**{"poll.return_value": None}) for name in (GCS, "raylet")}
        raylet = Mock(process=self.processes["raylet"])
        monkeypatch.setattr(services, "start_gcs_server", self._start_gcs)
        monkeypatch.setattr(services, "start_raylet", lambda session_dir, node_id, **ports: raylet)

    def _start_gcs(self) -> Mock:
        self.limits.append(os.environ[GCS_VARIABLE])
        return Mock(process=self.processes[GCS])

    def start(self, *names: str) -> None:
        """Starts these processes as `ray.init` does."""
        if GCS in names:
            services.start_gcs_server()  # type: ignore[call-arg]
        if "raylet" in names:
            services.start_raylet(session_dir=self.folder, node_id="node")  # type: ignore


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    monkeypatch.setattr(ray_start, "_processes", {})
    with restored_environment():
        yield Fake(tmp_path, monkeypatch)


@pytest.mark.parametrize("waits_for", ["the node", "the agents"])
@pytest.mark.parametrize("name", ["raylet", GCS])
def test_a_ray_that_loses_a_process_while_it_starts_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, fake: Fake, name: str, waits_for: str
) -> None:
    def init(**_: object) -> None:
        fake.start(GCS, "raylet")
        fake.processes[name].poll.return_value = -9
        if waits_for == "the node":
            services.get_node("here", "node")

    monkeypatch.setattr(services, "get_node", Mock(side_effect=RuntimeError("unknown node")))
    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(MtconError) as error:
        start_local_ray({})
    assert str(error.value) == (
        f"the {name} of Ray on this machine was ended by signal 9 as it started, in 4 tries; its "
        f"logs are below {sessions_folder()}; repeat the command when the machine is less busy"
    )
    assert len(fake.limits) == 4


def test_a_ray_that_dies_once_is_started_again(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    def init(**_: object) -> None:
        fake.start(GCS)
        if len(fake.limits) == 1:
            fake.processes[GCS].poll.return_value = -9
            raise RuntimeError("no answer")
        fake.processes[GCS].poll.return_value = None

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setenv(GCS_VARIABLE, "3")
    start_local_ray({})
    assert fake.limits[0] == "150", "the GCS has all the time, whatever holds for a cluster"
    assert len(fake.limits) == 2


def test_the_agents_are_waited_for(monkeypatch: pytest.MonkeyPatch, fake: Fake) -> None:
    missing = [fake.folder / f"{name}_node" for name in AGENT_FILES]
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: missing.pop().touch())
    monkeypatch.setattr(ray_private, "time", clock)
    monkeypatch.setattr(ray_start, "time", clock)
    monkeypatch.setattr(ray, "init", lambda **_: fake.start("raylet"))
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
    monkeypatch: pytest.MonkeyPatch, fake: Fake, error: BaseException, told: str
) -> None:
    """No process has died, but all of them would stay."""

    def init(**_: object) -> None:
        fake.start(GCS)
        raise error

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises((MtconError, KeyboardInterrupt), match=told):
        start_local_ray({})
    assert len(fake.limits) == 1
    fake.processes[GCS].kill.assert_called_once_with()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Returns the messages of this process before its end, and the exit code with which it ends."""
    told: list[object] = []

    def end(code: int) -> None:
        told.append(code)
        raise SystemExit

    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.setattr(ray_start, "LOOK_SECONDS", 0.01)
    return told


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("command", "how"), [("kill -9 $$", "was ended by signal 9"), ("exit 3", "ended with code 3")]
)
def test_a_process_whose_ray_dies_tells_it_and_ends(
    command: str, how: str, told: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of Ray may never return."""
    dies = Popen(["sh", "-c", f"read line; {command}"], stdin=PIPE)
    stays = Popen(["sleep", "600"])
    monkeypatch.setattr(ray_start, "_processes", {"raylet": dies, "GCS": stays})
    with ray_start.ending_with_ray(told.append):
        dies.communicate()
        wait_until(lambda: 1 in told, "the end of this process")
    assert told == [f"the raylet of Ray on this machine {how}, and no trial can continue", 1]
    assert stays.wait() == -signal.SIGKILL


def test_a_ray_that_ends_before_or_after_the_sweep_ends_nothing(
    told: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a local Ray of an earlier sweep in this process, which is on a cluster now."""
    before, after = Popen(["true"]), Popen(["cat"], stdin=PIPE)
    before.wait()
    monkeypatch.setattr(ray_start, "_processes", {"GCS": before, "raylet": after})
    with ray_start.ending_with_ray(told.append):
        time.sleep(0.1)
    after.communicate()
    time.sleep(0.1)
    assert told == []
