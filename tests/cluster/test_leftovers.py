"""The end of what killed drivers have left of their Ray, and of nothing else; without a Ray."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ray._private.node import Node

from mtcon_ray.cluster import leftovers
from mtcon_ray.cluster.leftovers import MARK, end_leftovers, owned_session
from tests.waiting import wait_until

# A driver: makes its session as Ray does, starts a process that writes a log there, and waits.
DRIVER = """
import subprocess, sys, time
from pathlib import Path
from mtcon_ray.cluster.leftovers import _mark
session = Path(sys.argv[1])
with _mark(session):
    with (session / "logs" / "raylet.out").open("w") as log:
        child = subprocess.Popen(["sleep", "600"], stdout=log)
    print(child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(leftovers, "sessions_folder", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """Keeps processes, which are ended after the test."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def make_session(sessions: Path, name: str, *, marked: bool = True) -> Path:
    session = sessions / f"session_{name}"
    (session / "logs").mkdir(parents=True)
    if marked:
        (session / MARK).touch()
    return session


def sleeper(log: Path, started: list[subprocess.Popen[str]], mode: str = "w") -> Any:
    log.touch()
    with log.open(mode) as file:
        stream = {"stdin": file} if mode == "r" else {"stdout": file}
        started.append(subprocess.Popen(["sleep", "600"], text=True, **stream))  # type: ignore[call-overload]
    return started[-1]


def test_what_a_dead_driver_left_is_named_and_ended(
    sessions: Path, started: list[subprocess.Popen[str]]
) -> None:
    session = make_session(sessions, "dead")
    agent = sleeper(session / "logs" / "agent.log", started)
    still = sleeper(session / "logs" / "worker.out", started)
    still.send_signal(signal.SIGSTOP)
    reader = sleeper(session / "logs" / "raylet.out", started, "r")
    line = end_leftovers()
    assert line is not None
    assert f"has left sleep ({min(agent.pid, still.pid)}), sleep (" in line
    assert line.endswith(" MB: ended")
    assert (agent.wait(), still.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert reader.poll() is None, "a process that reads a log is not Ray's"
    assert not (session / MARK).exists()
    assert end_leftovers() is None


def test_other_sessions_are_left_alone(
    sessions: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a living driver, of a program that is not ours, and of another user."""
    living = make_session(sessions, "living", marked=False)
    foreign = make_session(sessions, "foreign", marked=False)
    make_session(sessions, "dead")
    (sessions / "session_latest").symlink_to(foreign)
    others = [sleeper(each / "logs" / "raylet.out", started) for each in (living, foreign)]
    with leftovers._mark(living):
        assert end_leftovers() is None
        assert (living / MARK).exists()
    assert not (living / MARK).exists()
    session = make_session(sessions, "another-user")
    others.append(sleeper(session / "logs" / "raylet.out", started))
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: os.geteuid() + 1)
        assert list(leftovers._marked_sessions()) == [], "of another user"
        assert leftovers.leftovers([session]) == [], "of another user"
        assert end_leftovers() is None
    assert [other.poll() for other in others] == [None] * 3


def test_a_start_does_not_end_itself(sessions: Path) -> None:
    session = make_session(sessions, "dead")
    with (session / "logs" / "driver.log").open("w"):
        assert leftovers.leftovers([session]) == []


def test_a_driver_that_is_killed_leaves_its_session_unlocked(
    sessions: Path, started: list[subprocess.Popen[str]]
) -> None:
    session = make_session(sessions, "killed", marked=False)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(session)], stdout=subprocess.PIPE, text=True
    )
    started.append(driver)
    assert driver.stdout is not None
    child = int(driver.stdout.readline())
    assert end_leftovers() is None, "it lives"
    driver.kill()
    driver.wait()
    line = end_leftovers()
    assert line is not None
    assert f"has left sleep ({child}) of its Ray" in line
    wait_until(lambda: not leftovers._is_there(child), "the end of the child")


def test_a_session_is_marked_before_ray_starts_its_processes(
    sessions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(sessions, "new", marked=False)

    class Started(Node):
        def __init__(self, head: bool) -> None:
            self.head, self._session_dir = head, str(session)
            self._init_temp(None)

        def __del__(self) -> None:
            pass

    monkeypatch.setattr(Node, "_init_temp", lambda self, existing: None)
    unpatched = Node._init_temp
    with owned_session():
        Started(head=False)
        assert not (session / MARK).exists(), "the cluster that it is connected to is not its own"
        Started(head=True)
        assert (session / MARK).exists()
        assert end_leftovers() is None
    assert not (session / MARK).exists()
    assert Node._init_temp is unpatched


def test_a_process_that_cannot_end_is_named(
    sessions: Path, started: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = make_session(sessions, "dead")
    process = sleeper(session / "logs" / "raylet.out", started)
    monkeypatch.setattr(leftovers, "END_SECONDS", 0.0)
    monkeypatch.setattr(leftovers, "_is_there", lambda pid: True)
    line = end_leftovers()
    assert line is not None
    assert line.endswith(f"killed, but sleep ({process.pid}) cannot end before its disk answers")
    assert (session / MARK).exists(), "the next start looks again"
