"""Connection to Ray, and a view of the nodes that a cluster has or may scale to."""

import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mtcon_ray.capacity import ClusterView, NodeKind
from mtcon_ray.cluster.cluster_file import ANY_SIZE, view_of_file
from mtcon_ray.cluster.fair_share import marked_job
from mtcon_ray.cluster.leftovers import end_failed_start, owned_session
from mtcon_ray.cluster.ray_folders import away, sessions_folder
from mtcon_ray.cluster.ray_private import (
    PathlessJob,
    await_port,
    cluster_scales,
    configure_ray_loggers,
    end_process,
    keep_aws_secrets_from_trials,
    local_start,
    log_errors_of_nodes,
    submitted_variables,
    wait_for_agents,
)
from mtcon_ray.cluster.ray_watch import RayWatch
from mtcon_ray.cpus import usable_cpus
from mtcon_ray.environment import restored_environment
from mtcon_ray.errors import MtconError, ResourceError
from mtcon_ray.local import LOCAL, this_machine
from mtcon_ray.paths import expanded
from mtcon_ray.root_files import check_no_links, make_folder, remove, touch
from mtcon_ray.signals import own_signals
from mtcon_ray.tracking.mlflow_server import quiet_environment

# Seconds in which a Ray of this machine must start, with all tries.
START_LIMIT = 150
TRIES = 4
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# Set where the head of a cluster that scales is started: the path of the cluster's file.
FILE_VARIABLE = "MTCON_RAY_CLUSTER_FILE"
# `ray up` writes this file on the head that it creates.
BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
# Despite its name, Ray 2.60 reads it as the number of tries to reach a cluster, by default 20.
TRIES_VARIABLE, TRY_SECONDS = "RAY_gcs_server_port_wait_time_s", 40
# The network interface by which torch's gloo connects the workers of a trial.
GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"
EXPANDABLE = "expandable_segments:True"
# Torch reads either, the second for older settings.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Words of Ray for a wrong token; only of a cluster, since a path may have the number too.
REFUSED = re.compile(r"authenticat|\btoken\b|\b401\b", re.IGNORECASE)
RAY_LOGGERS = ("ray", "ray.tune", "ray.train")

# True while `connected` holds a session that it has opened; any other one is the caller's own.
_is_ours = False


def cluster_address() -> str | None:
    """Returns the address of this process's cluster (RAY_ADDRESS), None for a local Ray."""
    return os.environ.get("RAY_ADDRESS") or None


def view_of(
    cluster: str | None, on_phase: Callable[[str], None] = lambda what: None
) -> ClusterView:
    """Returns the view of a `--cluster` option: a cluster's file, an address or `local`.

    None means the cluster of RAY_ADDRESS, or this machine without it. Calls `on_phase` with a text
    before connecting to a cluster. Raises ResourceError for a file that is missing or describes no
    cluster, MtconError if no cluster answers.
    """
    if ray.is_initialized() and not _is_ours and not cluster:
        return connected_view()
    if cluster == LOCAL or not (cluster or cluster_address()):
        return this_machine()
    if cluster and Path(cluster).exists():
        return view_of_file(Path(cluster))
    if cluster and _is_file_name(cluster):
        raise ResourceError(
            "--cluster must be a Ray cluster YAML, an address or `local`, got the path "
            f"{cluster!r}, where no file is; correct the path"
        )
    if cluster:
        os.environ["RAY_ADDRESS"] = cluster
    if ray.is_initialized():
        return connected_view()
    on_phase(f"connecting to Ray at {cluster_address()}")
    with away():
        _init(log_to_driver=False, logging_level=logging.ERROR, job_config=PathlessJob())
        try:
            return connected_view()
        finally:
            ray.shutdown()


def _is_file_name(cluster: str) -> bool:
    return cluster.endswith((".yaml", ".yml")) or ("/" in cluster and "://" not in cluster)


def connected_view() -> ClusterView:
    """Returns the nodes of the connected cluster, or those that it may have after scaling up.

    Ray does not tell how far a cluster may scale. The cluster's file does: the one that
    MTCON_RAY_CLUSTER_FILE names, or the one that `ray up` wrote on the head. Without a file the
    view has one node of unknown size and number. Raises ResourceError for a file that describes no
    cluster.
    """
    where = cluster_address() or LOCAL
    if cluster_scales():
        named = os.environ.get(FILE_VARIABLE)
        config = expanded(named or BOOTSTRAP)
        if named or config.exists():
            return replace(view_of_file(config), where=where)
        anything = NodeKind("a node that the cluster may add", ANY_SIZE, ANY_SIZE, None)
        return ClusterView(where, (anything,))
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    sizes = Counter((each.get("CPU", 0.0), each.get("GPU", 0.0)) for each in alive)
    kinds = [NodeKind(f"{c:g}-CPU node", c, g, n) for (c, g), n in sorted(sizes.items())]
    return ClusterView(where, tuple(kinds))


def check_shared(folder: Path) -> None:
    """Raises ResourceError naming the nodes of the cluster that cannot see this node's `folder`."""
    nodes = [n for n in ray.nodes() if n["Alive"]]
    if len(nodes) < 2:
        return
    marker = folder / f".seen-by-{os.getpid()}"
    own = folder.resolve() / marker.name  # the root may be a link
    touch(own)
    try:
        look = ray.remote(num_cpus=0)(os.path.exists)
        on_each = (NodeAffinitySchedulingStrategy(n["NodeID"], soft=False) for n in nodes)
        asked = [look.options(scheduling_strategy=one).remote(str(marker)) for one in on_each]
        sees = zip(nodes, ray.get(asked), strict=True)
        blind = [node["NodeManagerAddress"] for node, seen in sees if not seen]
    finally:
        remove(own)
    if blind:
        raise ResourceError(
            f"the root must be on a file system that all nodes share, got {folder}, which "
            f"{', '.join(blind)} cannot see; name a shared folder with --root or storage.root"
        )


@contextmanager
def connected(log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Holds a Ray session for the sweep: in the cluster of RAY_ADDRESS, else on this machine.

    A session that is held already, with the same environment, is used and stays; so is any session
    that other code of this process has opened. Ray's own messages go to the `log` file. Afterwards
    environment variables and loggers are as before. Raises MtconError if no cluster answers.
    """
    global _is_ours
    with restored_environment(), _logging_to(log):
        keep_aws_secrets_from_trials()
        environment = beside_the_job(environment)
        os.environ.update(environment)  # for Ray and Tune, here and in processes they start
        if ray.is_initialized() and (not _is_ours or _environment_of_session() == environment):
            with away():
                yield
            return
        ray.shutdown()
        with away(), owned_session():
            try:
                _open_session(environment)
                _is_ours = True
                yield
            finally:
                ray.shutdown()
                _is_ours = False


@contextmanager
def _logging_to(log: Path) -> Iterator[None]:
    """Sends Ray's own messages to the `log` file; afterwards its loggers are as before."""
    loggers = [logging.getLogger(name) for name in RAY_LOGGERS]
    before = [(each, each.handlers, each.propagate) for each in loggers]
    configure_ray_loggers()
    log_errors_of_nodes()
    check_no_links(log)
    make_folder(log.parent)
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
    # Else each log line that a full disk refuses would print a traceback on the terminal.
    raises, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    finally:
        for logger, handlers, propagates in before:
            logger.handlers, logger.propagate = handlers, propagates
        handler.close()
        logging.raiseExceptions = raises


def _environment_of_session() -> dict[str, str]:
    """Returns the environment variables that the open session gives to its processes."""
    return dict(ray.get_runtime_context().runtime_env.env_vars())


def _open_session(environment: Mapping[str, str]) -> None:
    address = cluster_address()
    options: dict[str, Any] = {
        "log_to_driver": False,
        # With configure_logging=False Ray would drop our handler and write on the terminal.
        "logging_format": LOG_FORMAT,
        "runtime_env": {"env_vars": environment},
        "job_config": marked_job(),
    }
    if address is None:
        options |= {"address": "local", "num_cpus": usable_cpus(), "include_dashboard": False}
        options["_temp_dir"] = str(sessions_folder())
    # Ray's logs and token lie outside the root. The umask keeps them readable by the user alone.
    umask = os.umask(0o077) if address is None else None
    try:
        _init(**options)
    finally:
        if umask is not None:
            os.umask(umask)


def sweep_environment(threads: int) -> dict[str, str]:
    """Returns variables for every process of a sweep: no usage reports, none of Tune's loggers."""
    is_local = not cluster_address() and (_is_ours or not ray.is_initialized())
    loopback = "lo" if sys.platform == "linux" else "lo0"
    return {
        **quiet_environment(),
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        # The last result of a trial that fails or is interrupted has no objective.
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "3600",
        "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "OMP_NUM_THREADS": str(threads),
        **({GLOO_VARIABLE: os.environ.get(GLOO_VARIABLE, loopback)} if is_local else {}),
        **allocator_environment(),
    }


def allocator_environment() -> dict[str, str]:
    """Returns the setting of torch's allocator, {} if the user has one.

    Expandable segments reduce fragmentation, which matters where trials share a GPU. Torch reads
    the setting once per process.
    """
    given = {os.environ[name] for name in ALLOCATOR_VARIABLES if name in os.environ}
    # An open session has set its own value, which the next sweep in it keeps.
    return {ALLOCATOR_VARIABLES[0]: EXPANDABLE} if given <= {EXPANDABLE} else {}


def beside_the_job(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables without those that the job was submitted with.

    Ray refuses other values of the latter.
    """
    given = submitted_variables()
    return {name: value for name, value in environment.items() if name not in given}


def _init(**options: Any) -> None:
    """Starts a local Ray or connects to a cluster. Raises MtconError if that fails.

    A local Ray that dies while it starts is started again.
    """
    address = cluster_address()
    if address is not None:
        os.environ.setdefault(TRIES_VARIABLE, "1")
        try:
            with own_signals():
                await_port(address, TRY_SECONDS * int(os.environ[TRIES_VARIABLE]))
                ray.init(**options)
        except Exception as error:
            raise _unreachable(address, error) from error
        return
    deadline = time.monotonic() + START_LIMIT
    for left in reversed(range(TRIES)):
        lost = _start(deadline - time.monotonic(), options)
        if lost is None:
            return
        ray.shutdown()
        cause = end_failed_start()
        if not left or time.monotonic() > deadline:
            raise MtconError(
                f"{lost} as it started, in {TRIES - left} tries: {cause}; repeat the command when "
                "the machine is less busy"
            )


def _start(seconds: float, options: Mapping[str, Any]) -> str | None:
    """Starts a local Ray; returns which of its processes has died, None if it runs."""
    lost: list[str] = []

    def give_up() -> None:
        """Ends the process, which waits in a call of Ray."""
        sys.stderr.write(f"error: {lost[0]}; repeat the command\n")
        end_process()

    try:
        with (
            local_start(seconds) as started,
            own_signals(),
            RayWatch(lost.append, give_up, started),
            nullcontext(),
        ):
            ray.init(**options)
            wait_for_agents(seconds)
    except Exception as error:
        if not lost:
            raise _unreachable(None, error) from error
    return lost[0].partition(",")[0] if lost else None


def _unreachable(address: str | None, error: Exception) -> MtconError:
    text = str(error)
    if address is None and isinstance(error, OSError) and "AF_UNIX" in text:
        return MtconError(
            "the folder of Ray's sessions must have a path short enough for a socket, got "
            f"{sessions_folder()}; set RAY_TMPDIR=/tmp or to another short path"
        )
    if address is None and isinstance(error, OSError) and isinstance(error.filename, str):
        return MtconError(
            "Ray must be able to write its sessions, below RAY_TMPDIR, else TMPDIR, else /tmp, and "
            f"its token, below HOME, got {error.strerror} for {error.filename}; set that variable "
            "to a folder that can be written"
        )
    if address is not None and REFUSED.search(text):
        return MtconError(
            f"the Ray cluster at {address} wants its token (401): set RAY_AUTH_MODE=token here and "
            "give the head's token in RAY_AUTH_TOKEN or ~/.ray/auth_token; "
            "cluster/README.md says how"
        )
    if address is None and "timed out during startup" in text:
        return MtconError(
            f"a Ray of this machine must start within {START_LIMIT} s, got none; nothing is left "
            "of it: repeat the command when the machine is less busy"
        )
    way_out = "; start it, or unset RAY_ADDRESS for a Ray of this machine" if address else ""
    return MtconError(f"no Ray could be started or reached at {address or LOCAL}: {text}{way_out}")
