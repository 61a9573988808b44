"""Start of a Ray of this machine, with a repeat if one of its processes dies, and its watch."""

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from socket import socket
from subprocess import Popen
from typing import Any

import ray

from mtcon_ray.base.cpus import usable_cpus
from mtcon_ray.base.signals import own_signals
from mtcon_ray.cluster.environment import name_token, not_writable, sessions_folder
from mtcon_ray.cluster.ray_private import patient_start
from mtcon_ray.errors import MtconError

# Seconds in which a Ray of this machine must start, with all tries.
START_LIMIT = 150
TRIES = 4
LOOK_SECONDS = 1.0
BUSY = "; repeat the command when the machine is less busy"

# The raylet and the GCS of the Ray that this process has started last, by name.
_processes: dict[str, Popen[bytes]] = {}


def start_local_ray(options: Mapping[str, Any]) -> None:
    """Starts a Ray of this machine with these options of `ray.init`, and without a dashboard.

    A Ray that fails to start leaves no processes. It is started again if one of them has died.
    Raises MtconError if none runs in the end.
    """
    name_token()
    given = {**options, "num_cpus": usable_cpus(), "_temp_dir": str(sessions_folder())}
    deadline = time.monotonic() + START_LIMIT
    # Ray's logs lie outside the root. The umask keeps them readable by the user alone.
    umask = os.umask(0o077)
    try:
        _start(deadline, {**given, "address": "local", "include_dashboard": False})
    finally:
        os.umask(umask)


def _start(deadline: float, options: Mapping[str, Any]) -> None:
    for _ in range(TRIES):
        _processes.clear()
        try:
            with own_signals(), patient_start(deadline, free_ports(), _processes):
                ray.init(**options)
            return
        except BaseException as error:
            died = lost_process(_processes)
            ray.shutdown()
            for process in _processes.values():
                process.kill()  # the others follow
            if not isinstance(error, Exception):  # a signal
                raise
            if died is None:
                raise _not_started(error) from error
    raise _failure(f"{died} as it started, in {TRIES} tries", BUSY)


def free_ports() -> Iterator[int]:
    """Yields ports of 127.0.0.1 for the agents of a local Ray.

    The ports lie below the range from which Linux serves other programs.
    """
    for port in random.sample(range(20_000, 32_768), 10_000):
        with suppress(OSError), socket() as probe:
            probe.bind(("127.0.0.1", port))
            yield port


def lost_process(processes: Mapping[str, Popen[bytes]]) -> str | None:
    """Returns the name and the end of the first ended process, None if all run."""
    for name, process in processes.items():
        if (code := process.poll()) is not None:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
            return f"the {name} of Ray on this machine {how}"
    return None


@contextmanager
def ending_with_ray(tell: Callable[[str], None]) -> Iterator[None]:
    """Ends this process with code 1 if the raylet or the GCS of its local Ray ends meanwhile.

    Calls of Ray would wait without a message, and Ray itself ends the driver 60 s after its GCS.
    `tell` gets the reason before. Ray's exit handlers are left out, because they wait for the lost
    Ray. Does nothing for a Ray started by another process.
    """
    left = threading.Event()
    # Not of an earlier local Ray, after which this process uses a cluster.
    watched = {name: process for name, process in _processes.items() if process.poll() is None}

    def look() -> None:
        while not left.wait(LOOK_SECONDS):
            if died := lost_process(watched):
                tell(f"{died}, and no trial can continue")
                for process in watched.values():
                    process.kill()  # otherwise trials would train without a driver
                os._exit(1)

    threading.Thread(target=look, daemon=True, name="mtcon-ray-watch").start()
    try:
        yield
    finally:
        left.set()


def _not_started(error: Exception) -> MtconError:
    text = str(error)
    if isinstance(error, OSError) and (error.filename or "AF_UNIX" in text):
        return not_writable(error)
    if "timed out" in text.lower():
        return _failure(f"a Ray of this machine did not start within {START_LIMIT} s", BUSY)
    return _failure(f"no Ray could be started on this machine: {text}")


def _failure(what: str, way_out: str = "") -> MtconError:
    return MtconError(f"{what}; its logs are below {sessions_folder()}{way_out}")
