"""Demonstration of autoscaling: a sweep adds workers to an empty cluster and survives a lost one.

All processes run on this machine, with their own folder and ports. Other Ray clusters are not
affected. After the sweep, the cluster shrinks to zero workers again.
"""

import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import yaml

from mtcon_ray.base.paths import sweep_folder

REPOSITORY = Path(__file__).resolve().parent.parent
SPEC = "experiments/temperature.yaml"
# Two failures: workers of a machine share Ray's folder. A new worker's agent unpacks the job's
# package again while a trial on another worker imports from it, which costs the trial a try. The
# lost worker may cost it a second try. On several machines, each worker has its own folder.
SMALL = (
    "data.num_items=600", "views.size=16", "model.encoder.width=8", "train.batch_size=32",
    "evaluate.bootstrap=20", "search.scheduler={name: none}", "tracking.offline=true",
    "search.space.method.temperature={grid: [0.1, 0.3, 0.5, 1.0]}", "train.epochs=100",
    "search.max_failures=2",
)  # fmt: skip
NAME = "autoscaling"
IDLE_MINUTES = 0.25
WAIT_SECONDS = 600
# Ray's process title while a Tune trial trains in the process. Its parent is the node's raylet.
TRAINING = "ray::ResourceTrainable.train"
# Above the ports of Ray's workers, below the ephemeral ports of Linux (32768) and macOS (49152).
PORTS = range(20_000, 32_768)
# The node id of the head in Ray's fake node provider (ray/autoscaler/_private/fake_multi_node).
HEAD_ID = "f" * 51 + "00000"
AUTOSCALER = {
    "RAY_FAKE_CLUSTER": "1",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
    "RAY_enable_autoscaler_v2": "1",
    "RAY_CLOUD_INSTANCE_ID": HEAD_ID,
}


class Cluster:
    """A Ray head without CPUs, and worker nodes, which its autoscaler starts as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.seen: set[str] = set()
        self.used: set[str] = set()
        self._begin = time.monotonic()
        self._shown = ""
        self._gcs, self._dashboard, self._agent, self._clients = free_ports(4)
        self._head: subprocess.Popen[bytes] | None = None
        # Variables such as RAY_ADDRESS would lead to another cluster of this machine.
        own = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "MLFLOW_"))}
        self.environment = {
            **own,
            "HOME": str(folder),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_API_SERVER_ADDRESS": f"http://127.0.0.1:{self._dashboard}",
        }

    def start(self) -> None:
        """Starts the head and waits until its dashboard answers."""
        self._run("ray", "get-auth-token", "--generate")
        (self.folder / ".ray" / "auth_token").chmod(0o600)
        config = self._config()
        with (self.folder / "head.log").open("w") as log:
            self._head = subprocess.Popen(
                ["ray", "start", "--head", "--block", "--num-cpus=0", f"--port={self._gcs}",
                 f"--dashboard-port={self._dashboard}", f"--temp-dir={self.folder}/r",
                 f"--dashboard-agent-listen-port={self._agent}",
                 f"--ray-client-server-port={self._clients}", "--disable-usage-stats",
                 f"--autoscaling-config={config}"],
                env={**self.environment, **AUTOSCALER, "MTCON_RAY_CLUSTER_FILE": str(config)},
                stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.wait("the head is up", lambda: answers(self._dashboard))

    def submit(self, overrides: list[str], name: str = NAME) -> None:
        """Submits a sweep of this checkout as a job."""
        words = [word for value in overrides for word in ("--set", value)]
        self._run(sys.executable, "-m", "mtcon_ray", "submit", SPEC, "--name", name,
                  "--no-follow", *words)  # fmt: skip

    def status(self, name: str = NAME) -> str:
        """Returns the status of a sweep's job: "running", "succeeded", ..."""
        command = ("mtcon_ray", "list", "--cluster", "--json")
        jobs = json.loads(self._run(sys.executable, "-m", *command))
        return next(str(job["status"]).lower() for job in jobs if job["sweep"] == name)

    def logs(self) -> str:
        """Returns the output of the sweep's job."""
        return self._run(sys.executable, "-m", "mtcon_ray", "logs", NAME)

    def workers(self) -> dict[str, int]:
        """Returns the process ids of the worker nodes by short name."""
        found = {}
        for pid, words in self._processes():
            node = next((w for w in words if w.startswith("--node_id=")), HEAD_ID)
            if Path(words[0]).name == "raylet" and not node.endswith(HEAD_ID):
                found[f"worker-{int(node[-5:])}"] = pid
        return found

    def wait(self, text: str, ready: Callable[[], bool]) -> None:
        """Prints changes of the nodes until `ready` returns True, then prints `text`.

        Raises SystemExit after WAIT_SECONDS.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while not ready():
            self.show()
            if time.monotonic() > deadline:
                raise SystemExit(f"{WAIT_SECONDS} s were not enough for: {text}")
            time.sleep(0.5)
        self.say(text)

    def show(self) -> None:
        """Prints the worker nodes if they changed, and records the nodes with running trials."""
        workers = self.workers()
        self.seen |= set(workers)
        training = parents_of(TRAINING)
        self.used |= {name for name, pid in workers.items() if pid in training}
        text = f"{len(workers)} workers {' '.join(sorted(workers))}"
        if text != self._shown and self._head:
            self._shown = text
            self.say(text)

    def say(self, text: str) -> None:
        """Prints a line, beginning with the seconds since the start."""
        print(f"{time.monotonic() - self._begin:5.0f} s  {text}", flush=True)

    def stop(self) -> None:
        """Terminates the head's process group, and kills all other processes of this cluster."""
        if self._head:
            os.killpg(self._head.pid, signal.SIGTERM)
            self._head.wait(60)
        for pid, _ in self._processes():
            os.kill(pid, signal.SIGKILL)

    def _processes(self) -> list[tuple[int, list[str]]]:
        """Returns processes of this cluster, identified by its unique folder in command lines."""
        listed = subprocess.run(
            ["ps", "-axww", "-o", "pid=,args="], capture_output=True, text=True, check=True
        )
        lines = [line.split() for line in listed.stdout.splitlines() if f"{self.folder}/r/" in line]
        return [(int(pid), words) for pid, *words in lines]

    def _config(self) -> Path:
        """Writes a copy of `local.yaml` with this cluster's port and a shorter idle timeout."""
        import ray.util

        config = yaml.safe_load((REPOSITORY / "cluster" / "local.yaml").read_text())
        config["idle_timeout_minutes"] = IDLE_MINUTES
        config["provider"]["gcs_address"] = f"{ray.util.get_node_ip_address()}:{self._gcs}"
        path = self.folder / "cluster.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=self.environment, cwd=REPOSITORY, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command[:4])} failed: {done.stdout}{done.stderr}")
        return done.stdout


def parents_of(title: str) -> set[int]:
    """Returns the parents' process ids of all processes with a title beginning with `title`."""
    listed = subprocess.run(
        ["ps", "-axww", "-o", "ppid=,args="], capture_output=True, text=True, check=True
    )
    lines = [line.split(maxsplit=1) for line in listed.stdout.splitlines()]
    return {int(parent) for parent, *words in lines if words and words[0].startswith(title)}


def free_ports(count: int) -> list[int]:
    """Returns `count` random free ports outside the range of ephemeral ports.

    The head opens some of its ports only seconds later. If another process took a port in the
    meantime, the head would end. Any outgoing connection may take an ephemeral port.
    """
    return list(islice(filter(is_free, random.SystemRandom().sample(PORTS, len(PORTS))), count))


def is_free(port: int) -> bool:
    """Returns True if all processes of this machine leave the port unused, on any address."""
    with socket.socket() as one:
        try:
            one.bind(("", port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Returns True if a dashboard answers, even with an error about a missing token."""
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/api/version", timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def show_all(cluster: Cluster, overrides: list[str], lose: bool) -> None:
    """Runs the demonstration: zero workers, two, a killed worker if `lose`, and zero again."""
    cluster.start()
    cluster.submit(overrides)
    cluster.say("the sweep is submitted; no worker is there")
    checkpoints = sweep_folder(cluster.folder / "mtcon-ray", NAME) / "checkpoints"
    cluster.wait(
        "two trials train, one on each worker",
        lambda: len(cluster.workers()) == 2 and len(list(checkpoints.glob("*/last.pt"))) >= 2,
    )
    if lose:
        name, pid = sorted(cluster.workers().items())[0]
        os.kill(pid, signal.SIGKILL)
        cluster.say(f"{name} is lost, as a reclaimed spot machine is")
    ended = Ended(cluster)
    cluster.wait("the sweep has ended", ended)
    print(cluster.logs()[-1500:])
    cluster.wait("no worker is left", lambda: not cluster.workers())
    cluster.say(f"workers in all: {' '.join(sorted(cluster.seen))}")
    cluster.say(f"trials ran on: {' '.join(sorted(cluster.used))}")
    cluster.say(f"the job {ended.status}")
    if ended.status != "succeeded":
        raise SystemExit(1)


class Ended:
    """Predicate for the end of a sweep's job, with a status query every five seconds."""

    def __init__(self, cluster: Cluster, name: str = NAME) -> None:
        self.status = "running"
        self._cluster = cluster
        self._name = name
        self._next = 0.0

    def __call__(self) -> bool:
        if time.monotonic() > self._next:
            self.status = self._cluster.status(self._name)
            self._next = time.monotonic() + 5
        return self.status not in ("pending", "running")


def main() -> None:
    """Runs the demonstration, stops the cluster, and removes its folder except with --keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--no-loss", action="store_true", help="lose no worker on the way")
    parser.add_argument("--keep", action="store_true", help="leave the folder with all results")
    parser.add_argument("--set", action="append", default=[], help="as `mtcon-ray sweep --set`")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mtcon-", dir="/tmp"))
    cluster = Cluster(folder)
    cluster.say(f"folder {folder}")
    try:
        show_all(cluster, [*SMALL, *options.set], not options.no_loss)
    finally:
        cluster.stop()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
