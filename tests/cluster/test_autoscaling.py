"""A cluster that scales, for real: nodes that come when trials wait, are lost, and go."""

import re
import subprocess
from pathlib import Path

import pytest

from mtcon_ray.results import SweepResults, load_sweep
from mtcon_ray.tracking.spool import Spool

pytestmark = [pytest.mark.ray, pytest.mark.soak]
REPOSITORY = Path(__file__).parents[2]


def try_autoscaling(*options: str) -> tuple[str, SweepResults]:
    """What the command of cluster/README.md shows, and the sweep that it ran."""
    done = subprocess.run(
        ["sh", "cluster/try_autoscaling.sh", "--keep", *options],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (folder,) = re.findall(r"folder (/\S+)", done.stdout)
    left = subprocess.run(
        ["pgrep", "-f", f"{folder}/"], capture_output=True, text=True, check=False
    )
    assert left.stdout == "", "processes were left behind"
    return done.stdout, load_sweep(Path(folder) / "mtcon-ray" / "sweeps" / "autoscaling")


def test_a_sweep_grows_the_cluster_outlives_a_lost_node_and_leaves_none() -> None:
    shown, sweep = try_autoscaling()
    order = ["no worker is there", "2 workers worker-1 worker-2", "worker-1 is lost",
             "1 workers worker-2", "2 workers worker-2 worker-3", "0 workers",
             "used in all: worker-1, worker-2, worker-3; the job succeeded"]  # fmt: skip
    places = [shown.index(text) for text in order]
    assert places == sorted(places), shown
    assert [t.status for t in sweep.trials] == ["FINISHED"] * 4
    for trial in sweep.trials:
        events = Spool.read(sweep.folder / "spool" / f"{trial.name}.jsonl")
        epochs = [e["epoch"] for e in events if e["kind"] == "report"]
        assert epochs == list(range(1, 41)), "an epoch is lost or there twice"
    lost = list(sweep.folder.glob("tune/attempt-0/*/error.txt"))
    assert len(lost) == 1, "one trial was on the lost node, and went on elsewhere"
