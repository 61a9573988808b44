"""Sweeps whose object store fails, and two drivers of a sweep."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.data.object_store import ObjectStore, object_store
from tests.sweep.small_sweeps import assert_whole, command, fetched
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = pytest.mark.soak
ROUNDS = int(os.environ.get("MTCON_RAY_ROUNDS", "2"))
URL = "s3://photos/lab"
TRAIN = {"epochs": 12, "batch_size": 32, "warmup_epochs": 1, "checkpoint_seconds": 0.3}
TRACKING = {"offline": True, "checkpoints": "all"}
STORED: dict[str, Any] = {"train": TRAIN, "tracking": TRACKING, "storage": {"root": URL}}


def driver(home: Path, *words: str) -> subprocess.Popen[str]:
    """Starts a command with a HOME of its own, as on another machine."""
    home.mkdir(exist_ok=True)
    return command(*words, HOME=str(home))


@pytest.mark.parametrize(("fault", "seconds"), [(503, 10), (60.0, 60), ("cut", 10)])
def test_nothing_is_lost_if_the_store_fails_for_a_while(
    fault: str | float, seconds: float, spec_file: Callable[..., Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Each round begins at another moment."""
    rng = random.Random(0)
    path = spec_file(**STORED)
    with object_store(monkeypatch) as store:
        for number in range(ROUNDS):
            name = f"round-{number}"
            sweep = driver(tmp_path / "home", "sweep", str(path), "--name", name, "--here")
            wait_until(partial(requested, store, f"{name}/log/"), "the first trial", process=sweep)
            time.sleep(8 * rng.random())
            store.fault = lambda method, path: fault if method == "PUT" or fault != "cut" else None
            time.sleep(seconds)
            store.fault = lambda method, path: None
            told = sweep.communicate(timeout=PATIENCE_SECONDS)[0]
            assert sweep.returncode == 0, told[-3000:]
            assert_whole(fetched(URL, tmp_path / name, name), 3, 12)


def requested(store: ObjectStore, part: str) -> bool:
    return any(part in path for _, path in list(store.requests))


def contents(store: ObjectStore) -> dict[str, str]:
    """Returns the ETags of a sweep's objects."""
    listed = store._client.list_objects_v2(Bucket="photos", Prefix="lab/sweeps/one/")["Contents"]
    return {each["Key"]: each["ETag"] for each in listed if not each["Key"].endswith("/")}


@pytest.mark.ray
def test_a_driver_that_stood_still_changes_nothing_after_a_takeover(
    spec_file: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its processes, those of its Ray and its trials too, stand still for 90 seconds."""
    path = spec_file(**{**STORED, "train": {**TRAIN, "epochs": 40}})
    with object_store(monkeypatch) as store:
        first = driver(tmp_path / "a", "sweep", str(path), "--name", "one")
        wait_until(lambda: sum("/last-" in n for n in store.names()) > 1, "a checkpoint",
                   process=first, told=lambda: first.communicate()[0], pause=0.2)  # fmt: skip
        refused = driver(tmp_path / "b", "resume", f"{URL}/sweeps/one")
        assert "'one' is already running, driven by" in refused.communicate(timeout=120)[0]
        assert refused.returncode == 2
        signal_all(first, signal.SIGSTOP)
        begun = time.monotonic()
        try:
            time.sleep(65)
            second = driver(tmp_path / "b", "resume", f"{URL}/sweeps/one")
            told = second.communicate(timeout=PATIENCE_SECONDS)[0]
            assert second.returncode == 0, told[-3000:]
            time.sleep(max(0.0, begun + 90 - time.monotonic()))
            before = contents(store)
        finally:
            signal_all(first, signal.SIGCONT)
        told = first.communicate(timeout=PATIENCE_SECONDS)[0]
        assert first.returncode == 1, told[-3000:]
        assert "another driver has taken over one" in told
        time.sleep(20)
        assert contents(store) == before
        assert_whole(fetched(URL, tmp_path / "c", "one"), 3, 40)


def signal_all(driver: subprocess.Popen[str], number: signal.Signals) -> None:
    """Sends a signal to a driver and all processes that it has started, its Ray's too."""
    import psutil

    process = psutil.Process(driver.pid)
    for each in (process, *process.children(recursive=True)):
        if each.is_running():
            os.kill(each.pid, number)
