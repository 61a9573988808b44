"""Audit of runs that the user deleted in MLflow: it names how to restore them."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mtcon_ray.base.paths import event_file
from mtcon_ray.cli.main import program
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Reported
from mtcon_ray.tracking.mlflow_server import own_database
from mtcon_ray.tracking.sender import Sender
from tests.sweep.written_sweep import write_sweep


@pytest.mark.mlflow
@pytest.mark.parametrize("what", ["run", "experiment"])
def test_deleted_is_not_missing(root: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder, uri = root / "sweeps" / "shoes-1", own_database(root)
    write_sweep(folder)
    sender = Sender(folder, uri, "mtcon-ray")
    sender.start()
    assert sender.close(60) == 0
    client = MlflowClient(uri)
    experiment = client.search_experiments(filter_string="name = 'mtcon-ray'")[0].experiment_id
    run = client.search_runs([experiment], "tags.`mtcon.trial` = 'trial-0001'")[0].info.run_id
    delete, restore, given, way = {
        "run": (client.delete_run, client.restore_run, run, "runs restore --run-id"),
        "experiment": (
            client.delete_experiment, client.restore_experiment, experiment,
            "experiments restore -x",
        ),
    }[what]  # fmt: skip

    def audit(*options: str) -> Result:
        words = ["audit", "shoes-1", "--root", str(root), *options]
        return CliRunner().invoke(program, words)

    delete(given)
    report = Reported(trial="trial-0001", epoch=9, metrics={"loss": 1.0})
    EventLog(event_file(folder)).append(report)
    for options in ((), ("--repair",)):
        told = audit(*options)
        (line,) = (line for line in told.output.splitlines() if line.startswith("MLflow"))
        assert "is deleted" in line
        assert f"`MLFLOW_TRACKING_URI={uri} mlflow {way} {given}`" in line
        assert (told.exit_code, "repaired" in told.output) == (1, False)
    restore(given)
    assert "repaired: MLflow, run trial-0001: " in audit("--repair").output
    assert "MLflow" not in audit().output
