"""Test of `audit --repair`, which sends the events that MLflow lacks."""

from pathlib import Path

import pytest
from click.testing import Result

from mtcon_ray.base.paths import event_file
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Ended, Started
from mtcon_ray.records.recorded import write_beginnings
from mtcon_ray.spec.run_spec import parse_spec
from tests.cli.conftest import run
from tests.recorded import plan_with


@pytest.mark.mlflow
def test_repair_sends_the_events_of_an_offline_sweep_to_the_last(tmp_path: Path) -> None:
    folder = tmp_path / "sweeps" / "a-1"
    folder.mkdir(parents=True)
    spec = parse_spec({"name": "a", "tracking": {"offline": True}})
    write_beginnings(folder, spec, plan_with(num_trials=1))
    log = EventLog(event_file(folder))
    log.append(Started(params={}, tags={"mtcon.sweep": "a-1"}))
    log.append(Ended(status="FINISHED", tags={}))

    def audit(*options: str) -> Result:
        return run("audit", "a-1", "--root", tmp_path, *options)

    agree = "a-1: all records agree\n"
    assert audit().stdout == agree
    assert audit("--repair").stdout == f"repaired: MLflow, run parent: it is missing\n{agree}"
    log.append(Artifact(path=str(folder / "plan.json"), to=""))
    assert audit("--repair").stdout == f"repaired: MLflow: 1 events are not sent yet\n{agree}"
    assert audit("--repair").stdout == agree
