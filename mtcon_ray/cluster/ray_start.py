"""Start of a Ray of this machine, with a repeat if one of its processes dies."""

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from subprocess import Popen
from typing import Any

import ray

from mtcon_ray.base.signals import own_signals
from mtcon_ray.cluster.ray_folders import not_writable, sessions_folder
from mtcon_ray.cluster.ray_private import end_process, local_start, wait_for_agents
from mtcon_ray.cluster.ray_watch import RayWatch, lost_process
from mtcon_ray.errors import MtconError

# Seconds in which a Ray of this machine must start, with all tries.
START_LIMIT = 150
# No try begins with less time than a start takes.
TRIES, LEAST_TRY_SECONDS = 4, 20


def start_local_ray(options: Mapping[str, Any]) -> None:
    """Calls `ray.init` with these options until a Ray runs. Raises MtconError if none does.

    A Ray that fails to start leaves no processes.
    """
    deadline, num_tries = time.monotonic() + START_LIMIT, 0
    while loss := _start(deadline, options):
        num_tries += 1
        if num_tries == TRIES or deadline - time.monotonic() < LEAST_TRY_SECONDS:
            raise MtconError(
                f"{loss} as it started, in {num_tries} tries; {_logs()}; repeat the command when "
                "the machine is less busy"
            )


def _start(deadline: float, options: Mapping[str, Any]) -> str | None:
    """Starts a local Ray. Returns which of its processes has died, None if it runs."""
    lost: list[str] = []
    failed: Exception | None = None

    def give_up() -> None:
        """Ends the process, which waits in a call of Ray."""
        sys.stderr.write(f"error: {lost[0]}; repeat the command\n")
        end_process()

    try:
        with (
            local_start(deadline) as started,
            own_signals(),
            RayWatch(lost.append, give_up, started),
            nullcontext(),
        ):
            ray.init(**options)
            wait_for_agents(deadline)
    except Exception as error:
        failed = error
    except BaseException:  # a signal
        _end(started)
        raise
    if not (lost or failed):
        return None
        # The watch looks once a second, so the error may come first.
    died = lost[0].partition(",")[0] if lost else lost_process(started)
    _end(started)
    if died or not failed:
        return str(died)
    raise _not_started(failed) from failed


def _end(started: Mapping[str, Popen[bytes]]) -> None:
    """Ends the raylet and the GCS of a Ray after a failed start. Its other processes follow."""
    ray.shutdown()
    for process in started.values():
        process.kill()


def _logs() -> str:
    return f"its logs are below {sessions_folder()}"


def _not_started(error: Exception) -> MtconError:
    text = str(error)
    if isinstance(error, OSError) and "AF_UNIX" in text:
        return MtconError(
            f"Ray cannot open a socket in the folder of its sessions, {sessions_folder()}, because "
            "the path is too long; set RAY_TMPDIR=/tmp or to another short path"
        )
    if isinstance(error, OSError) and isinstance(error.filename, str):
        return not_writable(error)
    if "timed out" in text.lower():
        return MtconError(
            f"a Ray of this machine did not start within {START_LIMIT} s; {_logs()}; repeat the "
            "command when the machine is less busy"
        )
    return MtconError(f"no Ray could be started on this machine: {text}; {_logs()}")
