"""An exported folder becomes a version in MLflow's registry and can be had from there again."""

from pathlib import Path

import pytest

from mtcon_ray.errors import TrackingError
from mtcon_ray.tracking.registered import register_model
from mtcon_ray.tracking.server import artifact_location, open_client

pytestmark = [
    pytest.mark.mlflow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]


def test_a_model_is_registered_beside_its_run(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = open_client(uri)
    experiment = client.create_experiment("mine", artifact_location(uri, tmp_path))
    tags = {"mtcon.sweep": "shoes-1", "mtcon.trial": "trial-0002"}
    run_id = client.create_run(experiment, tags=tags).info.run_id
    files = tmp_path / "files"
    files.mkdir()
    (files / "README.md").write_text("# shoes")
    (files / "model.pt2").write_bytes(b"weights")

    def register(trial: str) -> str:
        return register_model(
            files, "shoes", uri=uri, experiment="mine", sweep="shoes-1", trial=trial
        )

    assert [register("trial-0002"), register("trial-0002")] == ["1", "2"]
    version = client.get_model_version("shoes", "1")
    assert version.run_id == run_id
    assert version.description == "# shoes"

    from mlflow.artifacts import download_artifacts

    got = Path(download_artifacts(client.get_model_version_download_uri("shoes", "1")))
    assert (got / "model.pt2").read_bytes() == b"weights"
    with pytest.raises(TrackingError, match="must hold the run of shoes-1/trial-0007"):
        register("trial-0007")
