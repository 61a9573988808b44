"""Connection to Ray, and a view of a cluster's nodes, now or after scaling up."""

import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from socket import create_connection
from typing import Any

import ray

from mtcon_ray.base.registry import expanded
from mtcon_ray.base.root_files import check_no_links, make_folder
from mtcon_ray.base.signals import own_signals
from mtcon_ray.cluster.cluster_file import view_of_file
from mtcon_ray.cluster.environment import TOKEN_HINT, away, cluster_address, restored_environment
from mtcon_ray.cluster.jobs import retried
from mtcon_ray.cluster.ray_private import GCS_VARIABLE, log_errors_of_nodes
from mtcon_ray.cluster.ray_start import start_local_ray
from mtcon_ray.data.objects import keep_keys
from mtcon_ray.errors import MtconError, ResourceError
from mtcon_ray.plan.capacity import ClusterView, NodeKind
from mtcon_ray.plan.local import LOCAL, this_machine
from mtcon_ray.tracking.mlflow_server import quiet_environment

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# With configure_logging=False Ray would drop our handler and write on the terminal.
LOGS = {"log_to_driver": False, "logging_format": LOG_FORMAT}
# Set at the start of a scaling cluster's head: the path of the cluster's file.
FILE_VARIABLE = "MTCON_RAY_CLUSTER_FILE"
# `ray up` writes this file on its new head.
BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
SCALING_HINT = f"; if the cluster adds nodes, name its file in {FILE_VARIABLE}"
# For each try to reach a cluster.
TRY_SECONDS = 40
# The network interface by which torch's gloo connects the workers of a trial.
GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"
EXPANDABLE = "expandable_segments:True"
# Torch reads either, the second for older settings.
ALLOCATOR_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Words of Ray for a wrong token.
REFUSED = re.compile(r"authenticat|\btoken\b|\b401\b", re.IGNORECASE)
# With the names in `objects.keep_keys`. The first variable is an older name of the last.
AWS_KEYS = {
    "AWS_SECURITY_TOKEN": "session_token",
    "AWS_ACCESS_KEY_ID": "access_key",
    "AWS_SECRET_ACCESS_KEY": "secret_key",
    "AWS_SESSION_TOKEN": "session_token",
}

# True while `connected` holds its own session. Any other session belongs to the caller.
_is_ours = False


def view_of(cluster: str | None, on_phase: Callable[[str], None] = lambda _: None) -> ClusterView:
    """Returns the view of a `--cluster` option: a cluster's file or `local`.

    None means the cluster of RAY_ADDRESS, or this machine without it. Calls `on_phase` with a text
    before connecting to a cluster. Raises ResourceError for a missing file or a file without a
    cluster, MtconError if no cluster answers.
    """
    is_callers = ray.is_initialized() and not _is_ours
    if cluster and cluster != LOCAL:
        return view_of_file(Path(cluster))
    if cluster or not (cluster_address() or is_callers):
        return this_machine()
    with visiting(on_phase):
        return connected_view()


@contextmanager
def visiting(on_phase: Callable[[str], None]) -> Iterator[None]:
    """Holds a session in the cluster of RAY_ADDRESS, by default the session that is open already.

    Calls `on_phase` with a text before it connects. Raises MtconError if no cluster answers.
    """
    if ray.is_initialized():
        yield
        return
    on_phase(f"connecting to Ray at {cluster_address()}")
    log_errors_of_nodes()
    with away():
        _connect({"log_to_driver": False, "logging_level": logging.ERROR})
    try:
        yield
    finally:
        ray.shutdown()


def connected_view() -> ClusterView:
    """Returns the nodes of the connected cluster, or its possible nodes after scaling up.

    Ray does not report whether a cluster adds nodes. Its possible nodes are in the cluster's file,
    named by MTCON_RAY_CLUSTER_FILE or written by `ray up` on the head. Raises ResourceError for a
    file without a cluster.
    """
    where = cluster_address() or LOCAL
    named = os.environ.get(FILE_VARIABLE)
    config = expanded(named or BOOTSTRAP)
    if named or config.exists():
        return view_of_file(config, where)
    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    sizes = Counter((each.get("CPU", 0.0), each.get("GPU", 0.0)) for each in alive)
    kinds = [NodeKind(f"{c:g}-CPU node", c, g, n) for (c, g), n in sorted(sizes.items())]
    return ClusterView(where, tuple(kinds), hint="" if where == LOCAL else SCALING_HINT)


@contextmanager
def connected(log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Holds a Ray session for the sweep: in the cluster of RAY_ADDRESS, else on this machine.

    A session already held with the same environment is used and stays. The same applies to any
    session opened by other code of this process. Ray's own messages go to the `log` file.
    Afterwards environment variables and loggers are as before. Raises MtconError if no cluster
    answers.
    """
    global _is_ours
    with restored_environment(), _logging_to(log):
        if cluster_address():  # Ray refuses other values of the variables of a submitted job
            environment = {k: v for k, v in environment.items() if k not in os.environ}
        os.environ.update(environment)  # for Ray and Tune, here and in processes they start
        # Without a session `get_runtime_context` starts Ray.
        if ray.is_initialized() and (
            not _is_ours or ray.get_runtime_context().runtime_env.env_vars() == environment
        ):
            with away(), hidden_aws_keys():
                yield
            return
        ray.shutdown()
        with away():
            try:
                start = _connect if cluster_address() else start_local_ray
                start({**LOGS, "runtime_env": {"env_vars": environment}})
                _is_ours = True
                with hidden_aws_keys():
                    yield
            finally:
                ray.shutdown()
                _is_ours = False


@contextmanager
def hidden_aws_keys() -> Iterator[None]:
    """Removes AWS's keys from the environment. boto3, which MLflow uses, has read them before.

    Tune writes these variables into the command line of each process of a trial and into Ray's
    logs, where all users of a machine can read them. A trial has the keys of its node.
    """
    removed = {name: os.environ[name] for name in AWS_KEYS if os.environ.get(name)}
    if not removed:  # a session that is already held
        yield
        return
    with suppress(ImportError):
        boto3 = import_module("boto3")
        if boto3.DEFAULT_SESSION is None:
            boto3.setup_default_session()
        boto3.DEFAULT_SESSION.get_credentials()
    keep_keys({AWS_KEYS[name]: os.environ.pop(name) for name in removed})
    try:
        yield
    finally:
        os.environ.update(removed)
        keep_keys({})


@contextmanager
def _logging_to(log: Path) -> Iterator[None]:
    """Sends Ray's own messages to the `log` file. Afterwards its logger is as before."""
    logger = logging.getLogger("ray")
    handlers, propagates = logger.handlers, logger.propagate
    log_errors_of_nodes()
    check_no_links(log)
    make_folder(log.parent)
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    logger.handlers, logger.propagate = [handler], False
    # Otherwise each log line refused by a full disk would print a traceback on the terminal.
    raises, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagates
        handler.close()
        logging.raiseExceptions = raises


def sweep_environment(threads: int) -> dict[str, str]:
    """Returns variables for every process of a sweep: no usage reports, none of Tune's loggers."""
    is_local = not cluster_address() and (_is_ours or not ray.is_initialized())
    # Set by the user, or by an open session, of which the next sweep in it keeps the value.
    allocators = {os.environ[name] for name in ALLOCATOR_VARIABLES if name in os.environ}
    return {
        **quiet_environment(),
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        # Tune would start a trial of a preempted node again itself, without a limit.
        "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        # The last result of a failed or interrupted trial has no objective.
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "3600",
        "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "OMP_NUM_THREADS": str(threads),
        **({GLOO_VARIABLE: os.environ.get(GLOO_VARIABLE, "lo")} if is_local else {}),
        # Expandable segments reduce fragmentation, which matters if trials share a GPU.
        **({ALLOCATOR_VARIABLES[0]: EXPANDABLE} if allocators <= {EXPANDABLE} else {}),
    }


def await_port(address: str, seconds: float) -> None:
    """Waits until a process listens at a cluster's `host:port`. Ignores other addresses.

    Ray's client would print lines of its own log without a listener. Raises OSError after this many
    seconds.
    """
    host, _, port = address.rpartition(":")
    if port.isdecimal():
        place = host.strip("[]"), int(port)
        retried(lambda: create_connection(place, timeout=5).close(), seconds)


def _connect(options: Mapping[str, Any]) -> None:
    """Connects to the cluster of RAY_ADDRESS. Raises MtconError for a failure."""
    address = os.environ["RAY_ADDRESS"]
    if "://" in address:  # Ray's client knows neither a job's configuration nor all drivers
        raise ResourceError(
            f"the cluster must be a head's HOST:6379 or `auto`, got {address!r}; run the command "
            "on a machine of the cluster with it, or send it there with `mtcon-ray submit`"
        )
    os.environ.setdefault(GCS_VARIABLE, "1")
    try:
        with own_signals():
            await_port(address, TRY_SECONDS * int(os.environ[GCS_VARIABLE]))
            ray.init(**options)
    except Exception as error:
        way_out = "start it, or unset RAY_ADDRESS for a Ray of this machine"
        text = f"no Ray could be reached at {address}: {error}; {way_out}"
        if REFUSED.search(str(error)):
            text = f"the Ray cluster at {address} wants its token (401): {TOKEN_HINT}"
        raise MtconError(text) from error
