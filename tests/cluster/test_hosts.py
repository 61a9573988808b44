"""Several hosts as network namespaces with their own addresses; one is cut off and returns."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
import yaml

from mtcon_ray.base.paths import event_file
from mtcon_ray.records.events import Reported
from mtcon_ray.records.results import load_sweep
from tests import specs
from tests.cluster.machines import Machines
from tests.run_log import RunLog
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.soak]
EPOCHS = 150
SPEC = {
    **specs.SHORT,
    "name": "hosts",
    "data": {"kind": "synthetic", "num_items": 600},
    "train": {"epochs": EPOCHS, "batch_size": 32, "checkpoint_seconds": 0},
    "search": {**specs.GRID, "space": {"method.temperature": {"grid": [0.1, 0.3, 0.5]}}},
}


class Hosts(Machines):
    """A head and two workers in network namespaces, connected by a bridge in the head's."""

    def __init__(self, stack: ExitStack) -> None:
        super().__init__(stack, "10.77.0.1:6379")
        self._mark = f"mt{os.getpid()}"
        for number in range(3):
            ip("netns", "add", self.name(number))
            stack.callback(ip, "netns", "del", self.name(number))
            self.inside(number, "ip", "link", "set", "lo", "up")
        self.inside(0, "ip", "link", "add", "bridge", "type", "bridge")
        self.inside(0, "ip", "addr", "add", "10.77.0.1/24", "dev", "bridge")
        self.inside(0, "ip", "link", "set", "bridge", "up")
        for number in (1, 2):
            self._plug(number)

    def name(self, number: int) -> str:
        return f"{self._mark}-{number}"

    def inside(self, number: int, *command: str) -> None:
        ip("netns", "exec", self.name(number), *command)

    def _plug(self, number: int) -> None:
        self.inside(0, "ip", "link", "add", f"to{number}", "type", "veth",
                    "peer", "name", "eth0", "netns", self.name(number))  # fmt: skip
        self.inside(0, "ip", "link", "set", f"to{number}", "master", "bridge", "up")
        self.inside(number, "ip", "addr", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
        self.inside(number, "ip", "link", "set", "eth0", "up")

    def cable(self, number: int, state: str) -> None:
        """Sets the state of a worker's link: "down" disconnects it, "up" connects it."""
        self.inside(0, "ip", "link", "set", f"to{number}", state)

    def start(self, number: int, *command: str, log: str) -> subprocess.Popen[bytes]:
        return self.begin("ip", "netns", "exec", self.name(number), *command, log=log)

    def node(self, number: int) -> subprocess.Popen[bytes]:
        """Starts a Ray node; the head has no CPU, a worker has one."""
        address = f"10.77.0.{number + 1}"
        place = ["--head", "--port=6379", f"--temp-dir={self.folder}/r"]
        if number:
            place = ["--address=10.77.0.1:6379"]
        return self.start(
            number, "ray", "start", "--block", f"--node-ip-address={address}",
            f"--num-cpus={min(number, 1)}", "--disable-usage-stats", *place, log=f"{number}.log",
        )  # fmt: skip

    def end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
        super().end(process)

    def alive(self) -> str:
        """Returns the addresses of the nodes that the head considers alive."""
        code = (
            "import ray; ray.init(log_to_driver=False, logging_level='ERROR'); "
            "print(sorted(n['NodeManagerAddress'] for n in ray.nodes() if n['Alive']))"
        )
        command = ["ip", "netns", "exec", self.name(0), sys.executable, "-c", code]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        found = re.findall(r"\[.*\]", done.stdout)
        return str(found[-1]) if found else ""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with ExitStack() as stack:
        try:
            made = Hosts(stack)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"may not make network namespaces here: {error}")
        yield made


def test_a_host_that_is_cut_off_and_comes_back_costs_nothing(hosts: Hosts) -> None:
    subprocess.run(
        ["ray", "get-auth-token", "--generate"],
        env=hosts.environment, check=True, capture_output=True,
    )  # fmt: skip
    hosts.node(0)
    wait_until(lambda: "10.77.0.1" in hosts.alive(), "the head", pause=1)
    # Start the workers one after the other: they share Ray's temporary folder and would use the
    # same file names.
    first = hosts.node(1)
    wait_until(lambda: "10.77.0.2" in hosts.alive(), "a worker", pause=1)
    hosts.node(2)
    wait_until(lambda: "10.77.0.3" in hosts.alive(), "another worker", pause=1)
    (hosts.folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    sweep = hosts.start(
        0, sys.executable, "-m", "mtcon_ray", "sweep", f"{hosts.folder}/spec.yaml", "--name", "a",
        log="sweep.log",
    )  # fmt: skip
    folder = hosts.folder / "mtcon-ray" / "sweeps" / "a"
    wait_until(lambda: len(list(folder.glob("checkpoints/*/last.pt"))) == 2, "two trials", pause=1)

    hosts.cable(1, "down")
    wait_until(lambda: "10.77.0.2" not in hosts.alive(), "the host to be given up", pause=1)
    hosts.cable(1, "up")
    hosts.end(first)
    hosts.node(1)
    wait_until(lambda: "10.77.0.2" in hosts.alive(), "the host to be back", pause=1)

    assert sweep.wait(PATIENCE_SECONDS) == 0, hosts.log("sweep.log")[-3000:]
    assert [t.status for t in load_sweep(folder).trials] == ["FINISHED"] * 3
    for trial in load_sweep(folder).trials:
        events = RunLog(folder, trial.name).events()
        epochs = [e.epoch for e in events if isinstance(e, Reported)]
        assert epochs == list(range(1, EPOCHS + 1)), "an epoch is lost or there twice"
    assert '"lost"' in event_file(folder).read_text(), "no trial was on the lost host"
