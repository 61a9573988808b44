"""The three uses of Ray's private interfaces, checked with Ray 2.55 to 2.60.

Each function says why Ray's public interface does not suffice, and which Ray makes the function
unnecessary.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from inspect import signature
from pathlib import Path
from subprocess import Popen
from typing import Any

from ray._private import ray_constants, services, worker
from ray.exceptions import OutOfMemoryError, RayActorError, RayTaskError

# The ports of a local Ray's agents: arguments of `services.start_raylet`, and files of the session
# with the served ports, written by the agents.
LISTEN_PORT = "dashboard_agent_listen_port"
AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "runtime_env_agent_port", LISTEN_PORT)
AGENT_FILES = ("metrics_agent_port", "runtime_env_agent_port")
# The time after which a raylet ends if no agent answers.
AGENT_VARIABLE = "RAY_agent_register_timeout_ms"
# The seconds in which the GCS must name its port, and the number of tries to reach a cluster.
GCS_VARIABLE = "RAY_gcs_server_port_wait_time_s"
MEMORY_HINT = "lower search.max_concurrent, or end other programs there"


@contextmanager
def patient_start(
    deadline: float, ports: Iterator[int], processes: dict[str, Popen[bytes]]
) -> Iterator[None]:
    """Lets `ray.init` in the context start a local Ray, which listens on 127.0.0.1 alone.

    `ray.init` replaces 127.0.0.1 by the machine's address, except with a variable for other systems
    than Linux. It gives up after 30 s. A raylet awaits each agent's port for 15 s and then ends,
    and an agent on a busy machine needs more. Ray has no option for these. A Ray with options for
    the address of a local Ray and for its time to start makes this function unnecessary.

    `deadline` is the end of the start by `time.monotonic`, `ports` yields free ports. `processes`
    gets the raylet and the GCS by name, while they start. The context ends when the agents serve:
    without them no process of a trial starts. Raises TimeoutError after the deadline, and
    ChildProcessError if a process has ended. The caller restores the environment.
    """
    files: list[Path] = []  # which the agents write once they serve
    ask, raylet, gcs = services.get_node, services.start_raylet, services.start_gcs_server
    is_cluster, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    # For the processes of this Ray. The raylet ends if an agent is later.
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    seconds = max(1, round(deadline - time.monotonic()))
    os.environ.setdefault(AGENT_VARIABLE, str(1000 * seconds))
    os.environ[GCS_VARIABLE] = str(seconds)

    def start_raylet(*args: Any, **named: Any) -> Any:
        named |= zip(AGENT_PORTS, ports, strict=False)
        given = signature(raylet).bind(*args, **named).arguments
        session, node = Path(given["session_dir"]), given["node_id"]
        # Ray does not tell the raylet this port.
        (session / f"{LISTEN_PORT}_{node}").write_text(str(named[LISTEN_PORT]))
        files.extend(session / f"{name}_{node}" for name in AGENT_FILES)
        return keep("raylet", raylet(*args, **named))

    def keep(name: str, info: Any) -> Any:
        processes[name] = info.process
        return info

    def wait(what: str) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} timed out during startup")
        if any(process.poll() is not None for process in processes.values()):
            raise ChildProcessError(f"{what} did not start")
        time.sleep(0.1)

    def ask_until_registered(*address: str) -> Any:
        while True:
            try:
                return ask(*address)
            except RuntimeError:  # Ray's answer while the node is unknown
                wait("the raylet")

    services.get_node = ask_until_registered
    services.start_raylet = start_raylet
    services.start_gcs_server = lambda *args, **named: keep("GCS", gcs(*args, **named))
    try:
        yield
        while not all(file.exists() for file in files):
            wait("the agents")
    finally:
        services.get_node, services.start_raylet, services.start_gcs_server = ask, raylet, gcs
        ray_constants.ENABLE_RAY_CLUSTER = is_cluster


def log_errors_of_nodes() -> None:
    """Sends Ray's messages about lost processes to its logger instead of the terminal.

    They are printed even with `log_to_driver=False`, a raylet's with its last lines of log. A Ray
    that prints nothing with this option makes this function unnecessary.
    """

    def write(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
        for line in data["lines"]:
            logging.getLogger("ray").warning("%s", line)

    worker.print_to_stdstream = write


@cache
def count_errors_as_losses() -> None:
    """Makes Tune handle every other error of a process as the loss of this process.

    Tune would end all trials at an error that is neither an actor's nor a task's: Ray's kill of a
    process on a node that ran low on memory, and an exception that Ray cannot read. It gets an
    actor's error instead. A Tune for which these are failures of one trial makes this function
    unnecessary.
    """
    # Imported here because ray.air takes a second to import.
    from ray.air.execution._internal.actor_manager import RayActorManager

    failed = RayActorManager._actor_task_failed

    def handle(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if not isinstance(exception, RayActorError | RayTaskError):
            lines = str(exception).splitlines() or [type(exception).__name__]
            is_kill = isinstance(exception, OutOfMemoryError)
            text = f"{lines[0]}; {MEMORY_HINT}" if is_kill else lines[-1]
            exception = RayActorError(error_msg=text)
        failed(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = handle  # type: ignore[method-assign]
