"""MLflow's comparison of two sweeps in Chromium."""

import html
import json
import re
import shutil
from pathlib import Path
from urllib.parse import quote

import pytest

from mtcon_ray.records.events import Ended
from tests.processes import run
from tests.tracking.conftest import MLFLOW, Sweep
from tests.tracking.mlflow_server import Server

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
pytestmark = [
    *MLFLOW,
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM, reason="no Chromium on this machine"),
]


def test_mlflow_compares_the_trials_of_two_sweeps(root: Path, server: Server) -> None:
    server.start()
    sweeps = [Sweep(root / "sweeps" / name, server.uri) for name in ("shoes-1", "bags-1")]
    for sweep in sweeps:
        trial = sweep.begin_both(1, 2)
        trial.append(Ended(status="FINISHED", tags={}))
        sweep.send()
    found = [run for sweep in sweeps for run in (sweep.run(), sweep.run("trial-0000"))]
    runs = quote(json.dumps([run.info.run_id for run in found]))
    page = (
        f"{server.uri}/#/compare-runs?runs={runs}&experiments=[%22{found[0].info.experiment_id}%22]"
    )
    profile = f"--user-data-dir={root / 'profile'}"
    command = [
        str(PROGRAM), "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
        "--dump-dom", "--virtual-time-budget=60000", "--window-size=1400,2000", profile, page,
    ]  # fmt: skip
    shown = run(command, timeout=180)
    told = re.findall(r":(?:ERROR|WARNING):CONSOLE.*", shown.stderr)
    assert told == []
    words = html.unescape(re.sub(r"<[^>]+>", " ", shown.stdout)).split()
    text = " ".join(words)
    assert "Comparing 4 Runs from 1 Experiment" in text
    assert {"shoes-1", "shoes-1/trial-0000", "bags-1", "bags-1/trial-0000"} <= {*words}
    assert "method.temperature 0.1 0.1" in text
