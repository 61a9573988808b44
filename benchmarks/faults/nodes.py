"""A lost node of two: all its processes are killed, or freeze and wake up too late."""

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from benchmarks.faults.case import Case
from benchmarks.faults.jobs import SEARCH, SWEEP
from benchmarks.faults.kills import TRIAL_TITLE
from benchmarks.faults.processes import Command, children_of, cpu_seconds, kill, titled
from benchmarks.faults.rounds import Outcome, Round
from mtcon_ray.base.paths import event_file
from mtcon_ray.sweep.register import SILENT_SECONDS

# Killed as by a power cut, or frozen as by a cut network until Ray gives the node up.
WAYS = (signal.SIGKILL, signal.SIGSTOP)
DRAIN = (
    str(Path(sys.executable).parent / "ray"), "drain-node", "--reason",
    "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "spot", "--deadline-remaining-seconds", "5",
)  # fmt: skip
# From the notice to the end of the node.
NOTICE_SECONDS = 5.0
# The time limit to look at an old process after its own limit, and the processor time of a process
# that does not train, of two seconds.
LOOK_SECONDS, IDLE_SECONDS = 15.0, 0.5


def node(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Cuts off a node and expects its trial to continue on the other node."""
    case = Case(folder, round_, outcome, SWEEP)
    number = case.choose(WAYS)
    with _trial_on_node(case) as (command, there, is_reached):
        if is_reached:
            members = members_of(there)
            for pid in members:
                kill(pid, number)
            outcome.happened.append(f"{number.name} to {len(members)} processes of the node")
            case.recover(command, since=time.monotonic())
            for pid in members:
                kill(pid, signal.SIGCONT)
        case.finish(command)


def preempted(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Announces the end of a node and ends it. The loss of its trial is not counted."""
    case = Case(folder, round_, outcome, SWEEP)
    case.changes["search"] = {**SEARCH, "max_failures": 0}
    with _trial_on_node(case) as (command, there, is_reached):
        if is_reached:
            address = case.variables["RAY_ADDRESS"]
            drain = [*DRAIN, "--address", address, "--node-id", there.node_id]
            subprocess.run(drain, check=True, capture_output=True)
            time.sleep(NOTICE_SECONDS)
            # Under load the trials may end before the node does.
            log = event_file(case.run)
            is_lost = trials_on(there) and '"kind": "end"' not in log.read_text()
            for pid in members_of(there):
                kill(pid)
            case.recover(command, since=time.monotonic())
            if is_lost:
                is_told = '"counts": false' in log.read_text()
                case.expect(is_told, "the loss is not that of a preempted node")
        case.finish(command)


def cut_off(folder: Path, round_: Round, outcome: Outcome) -> None:
    """Freezes a node, kills the driver, resumes, and lets the trial's old process go on.

    The process must end its training within a minute and change nothing.
    """
    case = Case(folder, round_, outcome, SWEEP)
    with _trial_on_node(case) as (command, there, is_reached):
        if is_reached:
            old, members = trials_on(there), members_of(there)
            for pid in members:
                kill(pid, signal.SIGSTOP)
            command.kill()
            command.process.wait()
            command = case.resume()
            case.recover(command)
            begin = time.monotonic()
            for pid in old:  # without its raylet, which would end it
                kill(pid, signal.SIGCONT)
            is_quiet = _wait_until_idle(old, SILENT_SECONDS + LOOK_SECONDS)
            took = round(time.monotonic() - begin, 1)
            outcome.measured["seconds to end"] = took
            case.expect(is_quiet, f"the old process still trains after {took} s")
            for pid in members:
                kill(pid, signal.SIGCONT)
        case.finish(command)


@contextmanager
def _trial_on_node(case: Case) -> Iterator[tuple[Command, Any, bool]]:
    """Starts the sweep of a case on two nodes. Ends all its processes afterwards.

    Yields the command, the second node, and True once a trial runs there at a drawn moment, or
    False if the command ended before.
    """
    try:
        case.prepare()
        with cluster_of(1, 1) as cluster:
            case.variables["RAY_ADDRESS"] = cluster.address
            (there,) = cluster.worker_nodes
            command = case.start()
            is_reached = case.reach(command, case.early_moment()) and command.until(
                lambda: trials_on(there), "trial on the node"
            )
            yield command, there, is_reached
    finally:
        case.close()


def members_of(node: Any) -> list[int]:
    """Returns the raylet of a node and the processes that the raylet has started."""
    raylet = raylet_of(node)
    return [raylet, *children_of(raylet)]


def trials_on(node: Any) -> list[int]:
    """Returns the processes of trials on a node."""
    return titled(members_of(node), TRIAL_TITLE)


def _wait_until_idle(pids: list[int], seconds: float) -> bool:
    """Returns True once the processes have ended or use no processor for two seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = [cpu_seconds(pid) for pid in pids]
        time.sleep(2)
        now = [cpu_seconds(pid) for pid in pids]
        if all(later - sooner < IDLE_SECONDS for sooner, later in zip(before, now, strict=True)):
            return True
    return False


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
