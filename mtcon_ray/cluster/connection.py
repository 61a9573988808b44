"""Ray itself: what a cluster has or may scale to, and this process's connection to it."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mtcon_ray.capacity import ClusterView, NodeKind
from mtcon_ray.cluster.cluster_file import ANY_SIZE, view_of_file
from mtcon_ray.cluster.fair_share import marked_job
from mtcon_ray.cluster.ray_private import (
    cluster_scales,
    configure_ray_loggers,
    keep_aws_secrets_from_trials,
    submitted_variables,
)
from mtcon_ray.errors import MtconError, ResourceError
from mtcon_ray.tracking.server import quiet_environment

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
LOCAL = "local"
# Names the cluster's file where the head is started, for a cluster that scales.
FILE_VARIABLE = "MTCON_RAY_CLUSTER_FILE"
# What `ray up` leaves on the head that it makes.
BOOTSTRAP = Path("~/ray_bootstrap_config.yaml")
# How often Ray 2.60 tries to reach a cluster, despite its name. A try takes 40 s where nothing
# answers, and Ray makes 20.
TRIES_VARIABLE = "RAY_gcs_server_port_wait_time_s"


def cluster_address() -> str | None:
    """The address of the cluster that this process was started for, or None for a local Ray."""
    return os.environ.get("RAY_ADDRESS") or None


def local_view() -> ClusterView:
    """This machine alone, as a local Ray would offer it."""
    import torch

    node = NodeKind("this machine", float(_usable_cpus()), float(torch.cuda.device_count()), 1)
    return ClusterView(LOCAL, (node,))


def view_of(
    cluster: str | None, on_phase: Callable[[str], None] = lambda what: None
) -> ClusterView:
    """The view of `--cluster`: a cluster's file, `local`, or by default where we would run.

    `on_phase` is called with a text before a cluster is connected to. Raises ResourceError for a
    file that is no cluster's, MtconError where no cluster answers.
    """
    if cluster is None and cluster_address():
        return connected_view() if ray.is_initialized() else _view_by_connecting(on_phase)
    if cluster in (None, LOCAL):
        return local_view()
    path = Path(str(cluster))
    if path.exists():
        return view_of_file(path)
    os.environ["RAY_ADDRESS"] = str(cluster)
    return _view_by_connecting(on_phase)


def connected_view() -> ClusterView:
    """The nodes of the cluster that this process is connected to, or may have after scaling up.

    A cluster that scales does not tell what it may grow to. Its file says so: the one that
    MTCON_RAY_CLUSTER_FILE names, or that `ray up` left on the head. Without one the view has a
    node of unknown size and number. Raises ResourceError for a file that is no cluster's.
    """
    where = cluster_address() or LOCAL
    if cluster_scales():
        named = os.environ.get(FILE_VARIABLE)
        config = Path(named or BOOTSTRAP).expanduser()
        if named or config.exists():
            return replace(view_of_file(config), where=where)
        anything = NodeKind("a node that the cluster may add", ANY_SIZE, ANY_SIZE, None)
        return ClusterView(where, (anything,))
    sizes: dict[tuple[float, float], int] = {}
    for node in ray.nodes():
        if node["Alive"]:
            resources = node["Resources"]
            size = (resources.get("CPU", 0.0), resources.get("GPU", 0.0))
            sizes[size] = sizes.get(size, 0) + 1
    kinds = [NodeKind(f"{c:g}-CPU node", c, g, n) for (c, g), n in sorted(sizes.items())]
    return ClusterView(where, tuple(kinds))


def check_shared(folder: Path) -> None:
    """Raises ResourceError naming the nodes of a cluster that do not see this node's `folder`."""
    nodes = [n for n in ray.nodes() if n["Alive"]]
    if len(nodes) < 2:
        return
    marker = folder / f".seen-by-{os.getpid()}"
    marker.touch()
    try:
        look = ray.remote(num_cpus=0)(_sees)
        asked = {
            n["NodeManagerAddress"]: look.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(n["NodeID"], soft=False)
            ).remote(str(marker))
            for n in nodes
        }
        blind = [address for address, seen in asked.items() if not ray.get(seen)]
    finally:
        marker.unlink()
    if blind:
        raise ResourceError(
            f"the root must be on a file system that all nodes share, got {folder}, which "
            f"{', '.join(blind)} cannot see; name a shared folder with --root or storage.root"
        )


def _sees(path: str) -> bool:
    return Path(path).exists()


@contextmanager
def connected(log: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """A Ray session for the sweep: the cluster of RAY_ADDRESS, else one of this machine's own.

    Ray's own messages go to the `log` file. Raises MtconError where no cluster answers.
    """
    keep_aws_secrets_from_trials()
    environment = beside_the_job(environment)
    for name, value in environment.items():
        os.environ[name] = value  # read by Ray and Tune in this process and in those they start
    handler = _log_to(log)
    # On a full disk each line of the log would print a trace on the terminal.
    raises, logging.raiseExceptions = logging.raiseExceptions, False
    address = cluster_address()
    options: dict[str, Any] = {
        "log_to_driver": False,
        # Told not to configure, Ray would drop the handler, and then write on the terminal.
        "logging_format": LOG_FORMAT,
        "runtime_env": {"env_vars": dict(environment)},
        "job_config": marked_job(),
    }
    if address is None:
        options |= {
            "address": "local",
            "num_cpus": _usable_cpus(),
            "include_dashboard": False,
        }
    # Ray's logs and token lie outside the root: what a Ray of ours writes is the user's alone.
    umask = os.umask(0o077) if address is None else None
    try:
        _init(**options)
    finally:
        if umask is not None:
            os.umask(umask)
    try:
        yield
    finally:
        ray.shutdown()
        for name in ("ray", "ray.tune", "ray.train"):
            logging.getLogger(name).removeHandler(handler)
        handler.close()
        logging.raiseExceptions = raises


def sweep_environment(threads: int) -> dict[str, str]:
    """Variables for every process of a sweep: nothing sent home, no logger of Tune's own."""
    return {
        **quiet_environment(),
        "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
        "TUNE_DISABLE_SIGINT_HANDLER": "1",
        # A trial that fails or is interrupted ends with a result that has no value.
        "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
        "TUNE_GLOBAL_CHECKPOINT_S": "3600",
        "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
        "RAY_AIR_NEW_OUTPUT": "0",
        "OMP_NUM_THREADS": str(threads),
    }


def beside_the_job(environment: Mapping[str, str]) -> dict[str, str]:
    """Less what the job was submitted with: that holds, and Ray refuses it another value."""
    given = submitted_variables()
    return {name: value for name, value in environment.items() if name not in given}


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _view_by_connecting(on_phase: Callable[[str], None]) -> ClusterView:
    on_phase(f"connecting to Ray at {cluster_address()}")
    _init(log_to_driver=False, logging_level=logging.ERROR)
    try:
        return connected_view()
    finally:
        ray.shutdown()


def _init(**options: Any) -> None:
    """Start or reach a Ray. Raises MtconError where none answers."""
    address = cluster_address()
    if address is not None:
        os.environ.setdefault(TRIES_VARIABLE, "1")
    try:
        ray.init(**options)
    except Exception as error:
        raise _unreachable(address, error) from error


def _log_to(log: Path) -> logging.Handler:
    configure_ray_loggers()
    log.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(log, encoding="utf-8")
    handler.setFormatter(logging.Formatter(LOG_FORMAT))
    for name in ("ray", "ray.tune", "ray.train"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    return handler


def _unreachable(address: str | None, error: Exception) -> MtconError:
    text = str(error)
    if "uthentication" in text or "401" in text or "oken" in text:
        return MtconError(
            f"the Ray cluster at {address} wants its token (401): set RAY_AUTH_MODE=token here and "
            "give the head's token in RAY_AUTH_TOKEN or ~/.ray/auth_token; "
            "cluster/README.md says how"
        )
    if address is None and "timed out during startup" in text:
        return MtconError(
            "a Ray of this machine must start within 30 s, got none; nothing is left of it: repeat "
            "the command when the machine is less busy"
        )
    way_out = (
        "" if address is None else "; start it, or unset RAY_ADDRESS for a Ray of this machine"
    )
    return MtconError(f"no Ray could be started or reached at {address or LOCAL}: {text}{way_out}")
