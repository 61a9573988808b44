"""A sweep on 16 pretended nodes. Four are lost at once. Also the largest number of nodes.

Each node has its own raylet and a single CPU, and all nodes are on this machine. The trials only
wait. They import no torch.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from unittest.mock import patch

from ray.cluster_utils import Cluster

from benchmarks.faults.nodes import cluster_of, members_of
from benchmarks.faults.processes import kill, titled
from benchmarks.idle_trial import sweep_spec
from benchmarks.paced_trial import SHORT_EPOCHS, ShortTrial
from benchmarks.pretended import Rows
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import event_file
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import by_trial, read_events
from mtcon_ray.records.events import Ended, Event, Lost, Reported, Started
from mtcon_ray.spec.run_spec import with_values
from mtcon_ray.sweep import on_ray
from mtcon_ray.sweep.run import run_sweep

# Memory left to other programs, and to the started nodes.
SPARE_BYTES = 4e9
TITLE = f"ray::{ShortTrial.__name__}"  # of the process of a trial


class Losing(Callbacks):
    """Callback for the end of some nodes with trials, once half of all trials have begun."""

    def __init__(self, cluster: Cluster, num_trials: int, num_lost: int) -> None:
        self._nodes, self._num_lost, self._begun = [*cluster.worker_nodes], num_lost, set[str]()
        self._after = num_trials // 2

    def on_report(self, trial: str, epoch: int, epochs: int, metrics: Mapping[str, float]) -> None:
        self._begun.add(trial)
        if len(self._begun) < self._after or not self._num_lost:
            return
        busy = [each for node in self._nodes if titled(each := members_of(node), TITLE)]
        if len(busy) >= self._num_lost:
            for pid in [pid for members in busy[: self._num_lost] for pid in members]:
                kill(pid)
            self._num_lost = 0


def loss_rows(num_nodes: int, num_trials: int, num_lost: int) -> Rows:
    """Returns the results of a sweep after a loss of nodes. Asserts the loss of a trial."""
    changes = {
        "train.epochs": SHORT_EPOCHS,
        "tracking.offline": True,
        "search.sampler": "random",
        "search.scheduler": "none",
        "search.max_concurrent": num_nodes,
        "search.max_failures": 5,
    }
    begin = perf_counter()
    with TemporaryDirectory() as place, cluster_of(0, *[1] * num_nodes) as cluster:
        started, root = perf_counter() - begin, Path(place)
        with (
            patch.dict(os.environ, RAY_ADDRESS=cluster.address),
            patch.object(on_ray, "ReusedTrainable", ShortTrial),
        ):
            spec = with_values(sweep_spec(num_trials), changes)
            results = run_sweep(spec, root=root, callbacks=Losing(cluster, num_trials, num_lost))
        took = perf_counter() - begin - started
        events = by_trial(read_events(event_file(results.folder)))
    events.pop(None)
    assert any(isinstance(event, Lost) for each in events.values() for event in each)
    finished = sum(trial.status is Status.FINISHED for trial in results.trials)
    doubled = sum(not _is_single(each) for each in events.values())
    again = sum(any(isinstance(event, Lost) for event in each) for each in events.values())
    what = f"{num_nodes} Ray nodes, {num_lost} lost at once, {num_trials} trials"
    return [
        (f"{what}: finished, doubled", f"{finished}, {doubled}", f"{num_trials}, 0"),
        ("of them given out again", str(again), ""),
        ("s until the nodes have started, s of the sweep", f"{started:.0f}, {took:.0f}", ""),
    ]


def _is_single(events: list[Event]) -> bool:
    """Returns True if a trial has a single start and end, and each epoch once."""
    epochs = [event.epoch for event in events if isinstance(event, Reported)]
    kinds = [sum(isinstance(event, kind) for event in events) for kind in (Started, Ended)]
    return kinds == [1, 1] and epochs == list(range(1, SHORT_EPOCHS + 1))


def most_rows(most: int) -> Rows:
    """Starts nodes until memory ends or a node fails, `most` at most. Returns their number."""
    begin, number, why = perf_counter(), 0, "the benchmark's limit"
    with cluster_of(0) as cluster:
        try:
            while number < most and _free_bytes() > SPARE_BYTES:
                cluster.add_node(num_cpus=1)
                number += 1
            if number < most:
                why = f"{SPARE_BYTES / 1e9:.0f} GB of memory are left"
        except Exception as error:
            why = f"{type(error).__name__}: {error}".splitlines()[0]
        took = perf_counter() - begin
    return [
        (f"most Ray nodes on this machine ({why}), s to start them", f"{number}, {took:.0f}", "")
    ]


def _free_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
