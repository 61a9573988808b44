"""A trial with a range of workers: it grows and shrinks, and trains the same."""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from ray.cluster_utils import Cluster

from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Reported
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.sweep.audit import Audit
from mtcon_ray.training.trainer import Trainer
from tests import specs
from tests.processes import REPOSITORY, begin, kill, run
from tests.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.soak]
SPEC = {
    **specs.SHORT,
    "name": "elastic",
    "data": {"kind": "synthetic", "num_items": 2000},
    "train": {"epochs": 5000, "batch_size": 60, "warmup_epochs": 1, "checkpoint_seconds": 0},
    "evaluate": {"every": 5, "bootstrap": 20},
    "search": {**specs.GRID, "space": {"method.temperature": {"grid": [0.1]}}, "max_failures": 10},
    "resources": {"workers": [1, 2]},
}
# Losses of the same global batches on other numbers of workers differ by rounding, which grows: by
# 0.8 % at most where this was measured. Half a batch lowers the loss by 9 %, log 2 of 7.6.
TOLERANCE = 0.02
MOST_COMPARED = 500  # a fast machine trains thousands of epochs meanwhile


class Elastic:
    """The sweep of SPEC as a process, on nodes of one CPU each."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder = folder / "root" / "sweeps" / "elastic"
        self.cluster, self.log = cluster, folder / "log.txt"
        (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
        words = ("sweep", "spec.yaml", "--name", "elastic", "--root", "root")
        command = [sys.executable, "-m", "mtcon_ray", *words]
        here = {"PYTHONPATH": str(REPOSITORY), "RAY_ADDRESS": cluster.address}
        self.process = begin(command, self.log, cwd=folder, env={**os.environ, **here})

    def reports(self) -> list[Reported]:
        events = read_events(self.folder / "events.jsonl")
        return [event for event in events if isinstance(event, Reported) and event.trial]

    def workers(self) -> list[int]:
        """Returns the process ids of the trial's workers that train; others have no such title."""
        raylets = {
            node.all_processes["raylet"][0].process.pid
            for node in self.cluster.list_all_nodes()
            if node.any_processes_alive()
        }
        lines = run(["ps", "-axww", "-o", "pid=,ppid=,args="]).stdout.splitlines()
        found = [line.split() for line in lines if "ray::RayTrainWorker" in line]
        return [int(pid) for pid, parent, *_ in found if int(parent) in raylets]

    def wait(self, ready: Any, what: str) -> None:
        wait_until(ready, what, process=self.process, told=self.log.read_text, pause=0.1)

    def trains_with(self, num_workers: int) -> None:
        """Waits until so many workers have trained three more epochs."""
        self.wait(lambda: len(self.workers()) == num_workers, f"{num_workers} workers")
        before = len(self.reports())
        self.wait(lambda: len(self.reports()) >= before + 3, f"epochs of {num_workers} workers")
        assert len(self.workers()) == num_workers


@pytest.fixture
def elastic(tmp_path: Path) -> Iterator[Elastic]:
    """Starts a cluster of one node and the sweep."""
    # Sockets lie in this folder, so its path is short.
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True) as ray:
        head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": ray}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(num_cpus=1)
            made = Elastic(tmp_path, cluster)
            yield made
            kill(made.process)
        finally:
            cluster.shutdown()


def test_an_elastic_trial_trains_the_same_as_one_process(elastic: Elastic, tmp_path: Path) -> None:
    """One worker, two, one killed, one asked to end, one node lost."""
    elastic.trains_with(1)
    added = elastic.cluster.add_node(num_cpus=1)
    elastic.trains_with(2)

    for number in (signal.SIGKILL, signal.SIGTERM):
        before = set(elastic.workers())
        os.kill(min(before), number)
        elastic.wait(lambda before=before: not before & set(elastic.workers()), "end of workers")
        elastic.trains_with(2)

    elastic.cluster.remove_node(added, allow_graceful=False)
    elastic.trains_with(1)
    os.killpg(elastic.process.pid, signal.SIGTERM)
    assert elastic.process.wait(120) == 130, elastic.log.read_text()

    reports = elastic.reports()
    assert [report.epoch for report in reports] == list(range(1, len(reports) + 1))
    audit = Audit(elastic.folder)
    assert [*audit.records(), *audit.files()] == []
    spec = load_recorded(elastic.folder / "spec.yaml").trial({"method.temperature": 0.1}, 0)
    data = open_dataset(spec.data, view_size=16, store=tmp_path / "root" / "store")
    alone = Trainer(spec, data, tmp_path / "alone", device=torch.device("cpu"))
    for report, progress in zip(reports[:MOST_COMPARED], alone, strict=False):
        expected = pytest.approx(progress.metrics["loss"], rel=TOLERANCE)
        assert report.metrics["loss"] == expected, report.epoch
