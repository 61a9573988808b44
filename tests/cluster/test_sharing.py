"""Two sweeps on a cluster that starts without workers: each gets its share."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cluster.try_autoscaling import SMALL, Cluster, Ended
from mtcon_ray.paths import sweep_folder
from mtcon_ray.results import SweepResults, load_sweep
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Reported, Started

pytestmark = [pytest.mark.ray, pytest.mark.soak]
FIT = 2  # trials that fit, by `max_workers` and `resources` of cluster/local.yaml
TEMPERATURES = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]


class Span(NamedTuple):
    """Time span of a trial's training, in milliseconds, from its first to its last epoch's end."""

    begin: int
    end: int


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Starts a cluster with its own folder, token and ports."""
    made = Cluster(Path(tempfile.mkdtemp(prefix="mtcon-", dir="/tmp")))
    try:
        made.start()
        yield made
    finally:
        made.stop()
        left = subprocess.run(["pgrep", "-f", f"{made.folder}/"], capture_output=True, check=False)
        shutil.rmtree(made.folder, ignore_errors=True)
    assert left.stdout == b"", "processes were left behind"


def overrides(temperatures: list[float], epochs: int) -> list[str]:
    grid = f"search.space.method.temperature={{grid: {temperatures}}}"
    return [*SMALL, grid, f"train.epochs={epochs}"]


def parent_time(sweep: SweepResults, kind: str) -> int:
    events = EventLog.read(sweep.folder / "spool" / "parent.jsonl")
    return next(int(event.time_ms) for event in events if event.kind == kind)


def given_out(sweep: SweepResults) -> list[int]:
    """Returns the times at which the trials were suggested to Tune, in milliseconds, ascending."""
    return sorted(
        event.time_ms
        for trial in sweep.trials
        for event in EventLog.read(sweep.folder / "spool" / f"{trial.name}.jsonl")
        if isinstance(event, Started)
    )


def spans(sweep: SweepResults) -> list[Span]:
    found = []
    for trial in sweep.trials:
        events = EventLog.read(sweep.folder / "spool" / f"{trial.name}.jsonl")
        times = [event.time_ms for event in events if isinstance(event, Reported)]
        found.append(Span(times[0], times[-1]))
    return sorted(found)


def at_once(trials: list[Span]) -> int:
    """Returns the greatest number of trials that trained at the same time."""
    return max(sum(s.begin <= t.begin <= s.end for s in trials) for t in trials)


def test_a_small_sweep_has_its_part_beside_a_large_one_on_a_cluster_that_grows(
    cluster: Cluster,
) -> None:
    root = cluster.folder / "mtcon-ray"
    checkpoints = sweep_folder(root, "large") / "checkpoints"
    assert not cluster.workers()
    cluster.submit(overrides(TEMPERATURES, epochs=80), "large")
    cluster.wait(
        "the large sweep has the whole cluster",
        lambda: len(cluster.workers()) == FIT and len(list(checkpoints.glob("*/last.pt"))) == FIT,
    )
    cluster.submit(overrides([0.1, 0.5], epochs=20), "small")
    for name in ("small", "large"):
        ended = Ended(cluster, name)
        cluster.wait(f"the {name} sweep has ended", ended)
        assert ended.status == "succeeded"
    cluster.wait("no worker is left", lambda: not cluster.workers())

    large, small = (load_sweep(sweep_folder(root, name)) for name in ("large", "small"))
    for sweep, count in ((large, len(TEMPERATURES)), (small, 2)):
        assert [trial.status for trial in sweep.trials] == ["FINISHED"] * count
        assert json.loads((sweep.folder / "plan.json").read_text())["concurrency"] == FIT
    came, went = parent_time(small, "start"), parent_time(small, "end")
    assert went < parent_time(large, "end"), "the small sweep had to wait for the large one's end"
    of_large, of_small = spans(large), spans(small)
    assert at_once([t for t in of_large if t.begin < came]) == FIT, "the large one was not there"
    assert at_once([*of_large, *of_small]) <= FIT
    beside = [t for t in of_large for s in of_small if t.begin < s.end and s.begin < t.end]
    assert beside, "the large one had to wait for the small one's end"
    assert [t for t in given_out(large) if t > went], "nothing was left for the large one"
    assert at_once([t for t in of_large if t.end > went]) == FIT, "it never got the rest back"
