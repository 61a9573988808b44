"""Nodes without a common folder, and a root in an object store. The head's disk is lost."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import specs
from tests.cluster.conftest import environment_of
from tests.data.object_store import ObjectStore
from tests.processes import REPOSITORY, begin, kill
from tests.sweep.small_sweeps import assert_whole, fetched
from tests.tables import write_table
from tests.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.soak]
URL = "s3://photos/lab"
EPOCHS = 30
PORT = 6399


class Nodes:
    """Nodes of this machine, each with its own /tmp/ray and HOME. The head alone has the data.

    All that is left of them ends with `stack`.
    """

    def __init__(self, stack: ExitStack, store: ObjectStore) -> None:
        self._stack = stack
        self.folder = Path(tempfile.mkdtemp(prefix="mtcon-", dir="/tmp"))
        stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
        self.home, self.data = self.folder / "home", self.folder / "data"
        self.nodes: dict[str, subprocess.Popen[bytes]] = {}
        for place in (self.home, self.data, Path("/tmp/ray")):
            place.mkdir(exist_ok=True)
        self.environment = {
            **environment_of(self.home), "PYTHONPATH": str(REPOSITORY), **store.variables,
            "RAY_ADDRESS": f"127.0.0.1:{PORT}", "RAY_AUTH_MODE": "token",
        }  # fmt: skip

    def begin(self, *command: str, log: str) -> subprocess.Popen[bytes]:
        """Starts a process, whose output is added to a file of the folder."""
        process = begin(command, self.folder / log, env=self.environment, cwd=REPOSITORY)
        self._stack.callback(kill, process)
        return process

    def log(self, name: str) -> str:
        return (self.folder / name).read_text(errors="replace")

    def start(self, name: str) -> None:
        """Starts a node with two CPUs. The node "head" is a head without CPUs."""
        place = [f"--address=127.0.0.1:{PORT}", "--num-cpus=1"]
        if name.startswith("head"):
            place = ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"]
        mounts = f"for f in /tmp/ray {self.home} {self.data}; do mount -t tmpfs none $f; done; "
        ray = ["ray", "start", "--block", "--disable-usage-stats", *place]
        script = f"{mounts} mkdir {self.home}/.ray; echo {'a' * 32} > {self.home}/.ray/auth_token; "
        command = ["unshare", "-m", "bash", "-c", f'{script} exec "$@"', "node", *ray]
        self.nodes[name] = self.begin(*command, log=f"{name}.log")
        wait_until(lambda: "Ray runtime started" in self.log(f"{name}.log"), name, pause=1)

    def enter(self, name: str, *command: str, log: str) -> subprocess.Popen[bytes]:
        """Starts a command that sees the files of a node."""
        place = ("-t", str(self.nodes[name].pid), "-m", f"--wd={REPOSITORY}")
        return self.begin("nsenter", *place, *command, log=log)

    def kill(self, *names: str) -> None:
        """Ends nodes with their disks."""
        for name in names:
            kill(self.nodes.pop(name))

    def write_data(self, name: str, spec: dict[str, Any]) -> None:
        """Writes images, their CSV and a spec to the data folder that one node sees."""
        made = Path(tempfile.mkdtemp(dir=self.folder))
        write_table(made, kind=["a", "b"])
        (made / "spec.yaml").write_text(yaml.safe_dump(spec))
        assert self.enter(name, "cp", "-r", f"{made}/.", str(self.data), log="copy.log").wait() == 0
        shutil.rmtree(made)


@pytest.fixture
def nodes(bucket: ObjectStore) -> Iterator[Nodes]:
    able = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False)
    if able.returncode:
        pytest.skip(f"may not make mount namespaces here: {able.stderr.decode()}")
    with ExitStack() as stack:
        yield Nodes(stack, bucket)


def spec_of(nodes: Nodes, **changes: Any) -> dict[str, Any]:
    data = {"kind": "table", "images": f"{nodes.data}/images", "csv": f"{nodes.data}/labels.csv"}
    return {
        **specs.SHORT,
        "name": "apart",
        "data": {**data, "tasks": ["kind"]},
        "train": {"epochs": EPOCHS, "batch_size": 16, "checkpoint_seconds": 0.5},
        "evaluate": {"bootstrap": 20, "every": 5},
        "storage": {"root": URL},
        "search": {**specs.GRID, "space": {"method.temperature": {"grid": [0.1, 0.3, 0.5]}}},
    } | changes


def begun(nodes: Nodes, bucket: ObjectStore, count: int, **changes: Any) -> subprocess.Popen[bytes]:
    """Starts a sweep on a head and two nodes; returns its driver after so many checkpoints."""

    def are_there() -> bool:
        return sum("/last-" in name for name in bucket.names()) >= count

    for name in ("head", "one", "two"):
        nodes.start(name)
    nodes.write_data("head", spec_of(nodes, **changes))
    words = ("sweep", str(nodes.data / "spec.yaml"), "--name", "a")
    driver = nodes.enter("head", sys.executable, "-m", "mtcon_ray", *words, log="sweep.log")
    told = partial(nodes.log, "sweep.log")
    wait_until(are_there, "checkpoints", process=driver, pause=0.5, told=told)
    return driver


def resumed(nodes: Nodes, head: str) -> str:
    words = ("resume", f"{URL}/sweeps/a", "--take-over")
    driver = nodes.enter(head, sys.executable, "-m", "mtcon_ray", *words, log="resume.log")
    assert driver.wait(PATIENCE_SECONDS) == 0, nodes.log("resume.log")[-3000:]
    return nodes.log("resume.log")


def test_a_sweep_survives_head_and_disk(nodes: Nodes, bucket: ObjectStore, tmp_path: Path) -> None:
    """It goes on after the loss of the head and its disk."""
    driver = begun(nodes, bucket, 3)
    images = next(name for name in bucket.names() if name.endswith("images.npy"))
    assert bucket.reads(images) == 2, "each node fetches the images once"
    lost = [f"{nodes.data}/{name}" for name in ("labels.csv", "images/0.png")]
    nodes.enter("head", "rm", *lost, log="rm.log").wait()
    nodes.kill("head", "one", "two")
    driver.kill()
    for name in ("head-2", "three", "four"):
        nodes.start(name)
    assert "decoding" not in resumed(nodes, "head-2")
    assert_whole(fetched(URL, tmp_path, "a"), 3, EPOCHS)
    assert bucket.requests.count(("PUT", f"/photos/{images}")) == 1


def test_workers_of_a_trial_on_two_nodes(nodes: Nodes, bucket: ObjectStore, tmp_path: Path) -> None:
    search = {"space": {"method.temperature": {"grid": [0.1]}}, "sampler": "grid"}
    kill(begun(nodes, bucket, 2, resources={"workers": 2}, search=search))
    nodes.enter("head", "rm", "-r", str(nodes.home / ".cache"), log="rm.log").wait()
    resumed(nodes, "head")
    assert_whole(fetched(URL, tmp_path, "a"), 1, EPOCHS)
