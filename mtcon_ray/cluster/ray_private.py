"""Every use of private interfaces of Ray's core, checked against Ray 2.60 (`ray>=2.60,<2.61`).

Each function says why Ray's public interface does not suffice. An upgrade of Ray begins here and in
`mtcon_ray/sweep/tune_private.py`.
"""

import json
import logging
import os
import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from socket import socket
from subprocess import Popen
from typing import Any

from ray._private import ray_constants, services, worker
from ray._private.log import generate_logging_config
from ray._private.ray_constants import (
    DEBUG_AUTOSCALING_STATUS,
    PROCESS_TYPE_GCS_SERVER,
    PROCESS_TYPE_RAYLET,
)
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR
from ray.experimental.internal_kv import _internal_kv_get
from ray.job_config import JobConfig

# The ports of a local Ray's agents: arguments of `services.start_raylet`, and files of the session
# with the served ports, written by the agents.
LISTEN_PORT = "dashboard_agent_listen_port"
AGENT_PORTS = {"metrics_agent_port", "metrics_export_port", "runtime_env_agent_port", LISTEN_PORT}
AGENT_FILES = ("metrics_agent_port", "runtime_env_agent_port")
# The time after which a raylet ends if no agent answers.
AGENT_VARIABLE = "RAY_agent_register_timeout_ms"
# The seconds in which the GCS must name its port, and the number of tries to reach a cluster.
GCS_VARIABLE = "RAY_gcs_server_port_wait_time_s"
# The names of a local Ray's processes in messages.
RAYLET, GCS = "raylet", "GCS"

# Fields added by KubeRay's operator to a group of nodes.
KUBERAY_DEFAULTS: dict[str, Any] = {
    "rayStartParams": {}, "minReplicas": 0, "maxReplicas": 2**31 - 1,
}  # fmt: skip


def configure_ray_loggers() -> None:
    """Configures Ray's loggers now: `ray.init` would add its handlers to ours later."""
    generate_logging_config()


@contextmanager
def local_start(deadline: float) -> Iterator[dict[str, Popen[bytes]]]:
    """Starts a local Ray, which listens on 127.0.0.1 alone and must start before the deadline.

    `ray.init` replaces 127.0.0.1 by the machine's address, except with a variable for other systems
    than Linux. It gives up after 30 s, and has no option for it. Yields the processes as
    `local_processes` does, but already while they start. The caller restores the environment.
    """
    ask, raylet, gcs = services.get_node, services.start_raylet, services.start_gcs_server
    is_cluster, ray_constants.ENABLE_RAY_CLUSTER = ray_constants.ENABLE_RAY_CLUSTER, False
    # For the processes of this Ray. The raylet ends if an agent is later.
    os.environ[ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR] = "0"
    seconds = max(1, round(deadline - time.monotonic()))
    os.environ.setdefault(AGENT_VARIABLE, str(1000 * seconds))
    os.environ[GCS_VARIABLE] = str(seconds)
    started: dict[str, Popen[bytes]] = {}

    def start_raylet(*args: Any, **named: Any) -> Any:
        named |= zip(AGENT_PORTS, free_ports(), strict=False)
        given = signature(raylet).bind(*args, **named).arguments
        # Ray does not tell the raylet this port.
        file = Path(given["session_dir"], f"{LISTEN_PORT}_{given['node_id']}")
        file.write_text(str(named[LISTEN_PORT]))
        return keep(RAYLET, raylet(*args, **named))

    def keep(name: str, info: Any) -> Any:
        started[name] = info.process
        return info

    def ask_until_registered(*address: str) -> Any:
        while True:
            try:
                return ask(*address)
            except RuntimeError:  # Ray's answer while the node is unknown
                if time.monotonic() > deadline:
                    raise TimeoutError("the raylet timed out during startup") from None
                time.sleep(0.1)

    services.get_node = ask_until_registered
    services.start_raylet = start_raylet
    services.start_gcs_server = lambda *args, **named: keep(GCS, gcs(*args, **named))
    try:
        yield started
    finally:
        services.get_node, services.start_raylet, services.start_gcs_server = ask, raylet, gcs
        ray_constants.ENABLE_RAY_CLUSTER = is_cluster


def free_ports() -> Iterator[int]:
    """Yields ports of 127.0.0.1 for the agents of a local Ray.

    If an agent has no given port, the raylet awaits the port for 15 s and then ends. Ray 2.60
    has no setting for this limit, and an agent on a busy machine needs more. The ports lie below
    the range from which Linux serves other programs.
    """
    for port in random.sample(range(20_000, 32_768), 10_000):
        with suppress(OSError), socket() as probe:
            probe.bind(("127.0.0.1", port))
            yield port


def wait_for_agents(deadline: float) -> None:
    """Waits for the ports of a local Ray's agents, without which no process of a trial starts.

    Raises TimeoutError after the deadline.
    """
    if (node := worker._global_node) is None:
        return
    files = [Path(node.get_session_dir_path(), f"{name}_{node.node_id}") for name in AGENT_FILES]
    while not all(file.exists() for file in files):
        if time.monotonic() > deadline:
            raise TimeoutError("the agents timed out during startup")
        time.sleep(0.1)


class PathlessJob(JobConfig):
    """Job with processes that do not look for modules in folders of its driver.

    Ray would put the driver's working directory and the folder of its script first on `sys.path` of
    all processes, on other machines too, where the same path may be another user's. It has no
    option against this, and leaves the folders out for a job with an uploaded directory.
    """

    def _runtime_env_has_working_dir(self) -> bool:
        return True


def local_processes() -> dict[str, Popen[bytes]]:
    """Returns the raylet and the GCS started by this process, or {} without a Ray of its own.

    Ray's public interface cannot check them without waiting for their answer.
    """
    node = worker._global_node
    if node is None:
        return {}
    watched = {RAYLET: PROCESS_TYPE_RAYLET, GCS: PROCESS_TYPE_GCS_SERVER}
    started = {name: node.all_processes.get(kind) for name, kind in watched.items()}
    return {name: found[0].process for name, found in started.items() if found}


def end_process() -> None:
    """Ends this process with code 1, without Ray's exit handlers, which wait for the lost Ray."""
    os._exit(1)


def log_errors_of_nodes() -> None:
    """Sends Ray's messages about lost processes to its logger instead of the terminal.

    They are printed even with `log_to_driver=False`, a raylet's with its last lines of log.
    """

    def write(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
        for line in data["lines"]:
            logging.getLogger("ray").warning("%s", line)

    worker.print_to_stdstream = write


def cluster_scales() -> bool:
    """Returns True if an autoscaler adds nodes to this process's connected cluster.

    Ray has no public question for it. The second version of the autoscaler reports its presence.
    With the first version, Ray's monitor names node types by their id if no nodes are added.
    """
    # Imported here because processes of trials import this module and do not need the autoscaler.
    from ray.autoscaler._private.util import format_readonly_node_type
    from ray.autoscaler.v2.utils import is_autoscaler_v2

    if is_autoscaler_v2(fetch_from_server=True):
        return True
    status = _internal_kv_get(DEBUG_AUTOSCALING_STATUS)
    report = json.loads(status).get("autoscaler_report") if status else None
    fixed = format_readonly_node_type("")
    return report is not None and any(not kind.startswith(fixed) for kind in report["active_nodes"])


def kuberay_node_types(spec: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Returns the node types of a RayCluster's spec by name, and the head's name.

    Uses the autoscaler's own reader, and therefore counts resource overrides as the cluster will.
    """
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _HEAD_GROUP_NAME,
        _generate_available_node_types_from_ray_cr_spec,
    )

    def complete(group: dict[str, Any]) -> dict[str, Any]:
        return KUBERAY_DEFAULTS | {key: value for key, value in group.items() if value is not None}

    # The reader expects a RayCluster as Kubernetes returns it, with the operator's defaults.
    groups = [complete(group) for group in spec.get("workerGroupSpecs") or ()]
    whole = {"headGroupSpec": complete(spec["headGroupSpec"]), "workerGroupSpecs": groups}
    return _generate_available_node_types_from_ray_cr_spec(whole), _HEAD_GROUP_NAME


def submitted_variables() -> dict[str, str]:
    """Returns the submitted environment variables of this process's job.

    `ray.init` in a job refuses other values of the same variables, and does not return them.
    """
    config = json.loads(os.environ.get(RAY_JOB_CONFIG_JSON_ENV_VAR, "{}"))
    return (config.get("runtime_env") or {}).get("env_vars") or {}


def keep_aws_secrets_from_trials() -> None:
    """Removes AWS's variables from the variables passed on by Tune to the processes of trials.

    Tune writes them into the command line of each process and into Ray's logs, where all users of
    a machine can read them. It has no option against this. No trial needs the secrets.
    """
    # Imported here because ray.tune takes seconds to import.
    from ray.tune.execution import class_cache

    names = class_cache.ENV_VARS_TO_PROPAGATE
    names.difference_update([name for name in names if name.startswith("AWS_")])
