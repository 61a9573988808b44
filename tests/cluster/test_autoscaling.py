"""Autoscaling on a real Ray: nodes start when trials wait, are lost, and are removed when idle."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from mtcon_ray.base.paths import event_file
from tests.pages import run_by
from tests.processes import REPOSITORY, run
from tests.sweep.small_sweeps import assert_whole

pytestmark = [pytest.mark.ray, pytest.mark.soak]
TEST = "test_a_sweep_grows_the_cluster_outlives_a_lost_node_and_leaves_none"


def test_a_sweep_grows_the_cluster_outlives_a_lost_node_and_leaves_none() -> None:
    """The command of cluster/README.md. On a busy machine Ray may give up additional workers."""
    (block,) = run_by(f"tests/cluster/test_autoscaling.py::{TEST}")
    shown = run([*shlex.split(block.code), "--keep"], cwd=REPOSITORY, timeout=900).stdout
    order = ["no worker is there", "2 workers", "two trials train", "is lost", "1 workers",
             "2 workers", "the sweep has ended", "no worker is left", "job succeeded"]  # fmt: skip
    assert re.search(".*".join(order), shown, re.DOTALL), shown
    (folder,) = re.findall(r"folder (/\S+)", shown)
    sweep = Path(folder) / "mtcon-ray" / "sweeps" / "autoscaling"
    assert_whole(sweep, 4, 100)
    lost = '"lost"' in event_file(sweep).read_text()
    assert lost, "no trial was on the lost node, to go on elsewhere"
    run(["pgrep", "-f", f"{folder}/"], code=1)  # no process is left behind
    shutil.rmtree(folder)
