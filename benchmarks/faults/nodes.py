"""A lost node of two: all its processes are killed, or freeze and wake up too late."""

import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import SWEEP
from benchmarks.faults.kills import TRIAL_TITLE
from benchmarks.faults.processes import children_of, kill, titled
from benchmarks.faults.rounds import Outcome, Round

# Killed as by a power cut, or frozen as by a cut network until Ray gives the node up.
WAYS = (signal.SIGKILL, signal.SIGSTOP)


def node(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Cuts off a node and expects its trial to continue on the other node."""
    case = Case(folder, round_, outcome, SWEEP)
    try:
        case.prepare()
        number = case.choose(WAYS)
        with cluster_of(1, 1) as cluster:
            case.variables["RAY_ADDRESS"] = cluster.address
            raylet = raylet_of(*cluster.worker_nodes)
            command = case.start()

            def trials() -> list[int]:
                return titled(children_of(raylet), TRIAL_TITLE)

            is_reached = case.reach(command, case.early_moment())
            if is_reached and command.until(trials, "trial on the node"):
                members = [raylet, *children_of(raylet)]
                for pid in members:
                    kill(pid, number)
                outcome.happened.append(f"{number.name} to {len(members)} processes of the node")
                case.recover(command, since=time.monotonic())
                for pid in members:
                    kill(pid, signal.SIGCONT)
            case.finish(command)
    finally:
        case.close()


@contextmanager
def cluster_of(*num_cpus: int, **variables: str) -> Iterator[Cluster]:
    """Starts a head and nodes with these numbers of CPUs, which may exceed the machine's.

    Trials on the nodes see `variables` in their environment.
    """
    # Ray's sockets are in this folder, and their paths must be short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as ray:
        head = {"num_cpus": num_cpus[0], "env_vars": variables, "temp_dir": ray}
        head["include_dashboard"] = False
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for number in num_cpus[1:]:
                cluster.add_node(num_cpus=number, env_vars=variables)
            yield cluster
        finally:
            cluster.shutdown()


def raylet_of(node: Any) -> int:
    """Returns the process of a node's raylet, the parent of the trials' processes."""
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid
