"""MLflow's comparison of two sweeps in Chromium."""

import html
import json
import re
from pathlib import Path
from urllib.parse import quote

from mtcon_ray.records.events import Ended
from tests.browser import BROWSER, HEADLESS
from tests.processes import run
from tests.tracking.conftest import MLFLOW, Sweep
from tests.tracking.mlflow_server import Server

pytestmark = [*MLFLOW, *BROWSER]


def test_mlflow_compares_the_trials_of_two_sweeps(root: Path, server: Server) -> None:
    server.start()
    sweeps = [Sweep(root / "sweeps" / name, server.uri) for name in ("shoes-1", "bags-1")]
    for sweep in sweeps:
        sweep.begin_both(1, 2).append(Ended(status="FINISHED", tags={}))
        sweep.send()
    found = [run for sweep in sweeps for run in (sweep.run(), sweep.run("trial-0000"))]
    runs = quote(json.dumps([run.info.run_id for run in found]))
    experiments = quote(json.dumps([found[0].info.experiment_id]))
    page = f"{server.uri}/#/compare-runs?runs={runs}&experiments={experiments}"
    options = "--virtual-time-budget=60000", f"--user-data-dir={root / 'profile'}"
    shown = run([*HEADLESS, *options, page], timeout=180)
    assert not re.findall(r":(?:ERROR|WARNING):CONSOLE.*", shown.stderr)
    text = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", shown.stdout)).split())
    assert "Comparing 4 Runs from 1 Experiment" in text
    assert "method.temperature 0.1 0.1" in text
    assert {"shoes-1", "shoes-1/trial-0000", "bags-1", "bags-1/trial-0000"} <= {*text.split()}
