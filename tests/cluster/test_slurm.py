"""cluster/slurm/sweep.sbatch, with a real Slurm of two nodes on this machine."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.try_autoscaling import free_ports
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Reported
from tests import specs
from tests.processes import run
from tests.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.soak]
SCRIPT = Path(__file__).parents[2] / "cluster" / "slurm" / "sweep.sbatch"
TOOLS = Path(sys.executable).parent
PROGRAMS = ("slurmctld", "slurmd", "munged")
CONFIGURATION = """\
ClusterName=mtcon
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
SlurmctldPort={ports[0]}
ProctrackType=proctrack/pgid
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
KillWait=5
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000
PartitionName=all Nodes=n1,n2 Default=YES
"""


class Slurm:
    """A controller and two nodes, and jobs of sweep.sbatch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            **os.environ, "SLURM_CONF": str(folder / "slurm.conf"),
            "MTCON_RAY_ROOT": str(folder / "root"), "PATH": f"{TOOLS}:{os.environ['PATH']}",
        }  # fmt: skip

    def call(self, *words: str | Path) -> str:
        return run(words, env=self.environment, cwd=self.folder).stdout

    def submit(self, options: list[str], **train: Any) -> str:
        """Returns the number of a job with two trials of `train`."""
        spec = {
            **specs.TINY, "version": 1, "name": "slurm", "train": {**specs.TINY["train"], **train},
            "search": {**specs.GRID, "space": {"method.temperature": {"grid": [0.1, 0.5]}}},
        }  # fmt: skip
        (self.folder / "spec.yaml").write_text(yaml.safe_dump(spec))
        told = self.call("sbatch", "--parsable", "--cpus-per-task=2", *options, SCRIPT, "spec.yaml")
        return told.strip()

    def state(self, job: str) -> str:
        return self.call("scontrol", "show", "job", job).partition("JobState=")[2].split()[0]

    def log(self, job: str) -> str:
        return (self.folder / f"mtcon-ray-{job}.log").read_text(errors="replace")

    def await_state(self, job: str, state: str) -> None:
        wait_until(lambda: self.state(job) == state, state, told=lambda: self.log(job))

    def epochs(self, job: str) -> list[tuple[str, int]]:
        log = self.folder / "root" / "sweeps" / f"slurm-{job}" / "events.jsonl"
        if not log.exists():
            return []
        own = (e for e in read_events(log) if isinstance(e, Reported) and e.trial)
        return [(str(e.trial), e.epoch) for e in own]


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if os.geteuid() or not all(map(shutil.which, PROGRAMS)):
        pytest.skip(f"needs the user root and the programs {', '.join(PROGRAMS)} of Slurm")
    folder = tmp_path_factory.mktemp("slurm")
    (folder / "state").mkdir()
    host = socket.gethostname().split(".")[0]
    text = CONFIGURATION.format(folder=folder, host=host, ports=free_ports(3))
    (folder / "slurm.conf").write_text(text)
    if subprocess.run(["munge", "-n"], capture_output=True).returncode:
        Path("/run/munge").mkdir(exist_ok=True)
        shutil.chown("/run/munge", "munge")
        program = str(shutil.which("munged"))
        subprocess.run(["su", "-s", "/bin/sh", "munge", "-c", program], check=True)
        time.sleep(1)
    slurm = Slurm(folder)
    slurm.call("slurmctld")
    for node in ("n1", "n2"):
        slurm.call("slurmd", "-N", node)
    try:
        wait_until(lambda: slurm.call("sinfo", "-h", "-t", "idle", "-o", "%D").strip() == "2", "2")
        yield slurm
    finally:
        slurm.call("scontrol", "shutdown")


@pytest.mark.parametrize("nodes", [1, 2])
def test_jobs_of_one_and_two_nodes(slurm: Slurm, nodes: int) -> None:
    job = slurm.submit([f"--nodes={nodes}"])
    slurm.await_state(job, "COMPLETED")
    assert sorted(slurm.epochs(job)) == [(f"trial-000{t}", e) for t in (0, 1) for e in (1, 2)]
    assert not list(slurm.folder.glob(".mtcon-ray-*"))  # nothing is left of the token


def test_a_requeue_in_the_middle_of_a_trial(slurm: Slurm) -> None:
    job = slurm.submit(["--nodes=2"], epochs=300, checkpoint_seconds=1)
    wait_until(lambda: len(slurm.epochs(job)) > 20, "epochs", told=lambda: slurm.log(job))
    slurm.call("scontrol", "requeue", job)
    slurm.await_state(job, "COMPLETED")
    assert "Restarts=1" in slurm.call("scontrol", "show", "job", job)
    whole = [(f"trial-000{t}", e) for t in (0, 1) for e in range(1, 301)]
    assert sorted(slurm.epochs(job)) == whole


def test_a_time_limit_that_is_reached(slurm: Slurm) -> None:
    job = slurm.submit(["--time=2", "--signal=B:USR1@40"], epochs=3000, checkpoint_seconds=1)
    wait_until(
        lambda: "Restarts=1" in slurm.call("scontrol", "show", "job", job), "another turn",
        told=lambda: slurm.log(job),
    )  # fmt: skip
    before = len(slurm.epochs(job))
    assert "checkpoints are kept" in slurm.log(job)
    wait_until(lambda: len(slurm.epochs(job)) > before, "more", told=lambda: slurm.log(job))
    slurm.call("scancel", job)
    epochs = slurm.epochs(job)
    assert len(epochs) == len(set(epochs))
