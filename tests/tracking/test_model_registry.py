"""Registration of an exported folder in MLflow's registry, and its download from there."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.base.paths import event_file
from mtcon_ray.errors import SweepError, TrackingError
from mtcon_ray.records.event_log import EventLog, identity
from mtcon_ray.records.events import Started
from mtcon_ray.tracking.mlflow_server import artifact_location, open_client
from mtcon_ray.tracking.model_registry import find_run, register_model
from tests.tracking.conftest import MLFLOW

pytestmark = MLFLOW


def test_a_model_is_registered_beside_its_run(root: Path) -> None:
    uri = f"sqlite:///{root}/mlflow.db"
    client = open_client(uri)
    experiment = client.create_experiment("mine", artifact_location(uri, root))
    folder = root / "sweeps" / "shoes-1"
    EventLog(event_file(folder)).append(Started(params={}, tags={}))
    tags = {"mtcon.sweep": "shoes-1", "mtcon.trial": "trial-0002"}
    own = {**tags, "mtcon.id": identity(event_file(folder))}
    run_id = client.create_run(experiment, tags=own).info.run_id
    client.create_run(experiment, tags={**tags, "mtcon.id": "of another sweep of this name"})
    (files := root / "files").mkdir()
    (files / "README.md").write_text("# shoes")
    (files / "model.pt2").write_bytes(b"weights")

    def find(trial: str, name: str = "shoes") -> Any:
        return find_run(name, uri=uri, experiment="mine", folder=folder, trial=trial)

    versions = [register_model(files, "shoes", uri, find("trial-0002")) for _ in range(2)]
    assert versions == ["1", "2"]
    version = client.get_model_version("shoes", "1")
    assert version.run_id == run_id
    assert version.description == "# shoes"

    from mlflow.artifacts import download_artifacts

    got = Path(download_artifacts(client.get_model_version_download_uri("shoes", "1")))
    assert (got / "model.pt2").read_bytes() == b"weights"
    with pytest.raises(TrackingError, match="cannot register the model of shoes-1/trial-0007"):
        find("trial-0007")
    with pytest.raises(TrackingError, match="cannot register a model with the tracking server: "):
        find("it's")
    for name in ("", "shoes/best", "shoes:1"):
        with pytest.raises(TrackingError, match="cannot register a model with the tracking"):
            find("trial-0002", name)
    event_file(folder).unlink()
    with pytest.raises(SweepError, match="has no event log, by which its runs are found"):
        find("trial-0002")
