"""Registration of an exported folder in MLflow's registry, and its download from there."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.errors import TrackingError, UserError
from mtcon_ray.evaluate import open_checkpoint
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.tracking.mlflow_server import artifact_location, open_client
from mtcon_ray.tracking.model_registry import TrackedRun, find_run, register_model
from tests.tracking.mlflow_server import Server
from tests.waiting import PATIENCE_SECONDS

pytestmark = [
    pytest.mark.mlflow,
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]

SPEC = {
    "name": "small",
    "data": {"kind": "synthetic", "num_items": 200, "tasks": ["shape"]},
    "views": {"size": 16},
    "model": {"encoder": {"name": "small", "width": 4}},
    "train": {"epochs": 2, "batch_size": 16},
    "evaluate": {"bootstrap": 10},
    "search": {"space": {}, "sampler": "random", "num_trials": 1},
}


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    server = Server(root)
    server.start()
    yield server
    server.kill()


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

    def find(trial: str, name: str = "shoes") -> TrackedRun:
        return find_run(name, uri=uri, experiment="mine", sweep="shoes-1", trial=trial)

    versions = [register_model(files, "shoes", find("trial-0002")) for _ in range(2)]
    assert versions == ["1", "2"]
    version = client.get_model_version("shoes", "1")
    assert version.run_id == run_id
    assert version.description == "# shoes"

    from mlflow.artifacts import download_artifacts

    got = Path(download_artifacts(client.get_model_version_download_uri("shoes", "1")))
    assert (got / "model.pt2").read_bytes() == b"weights"
    with pytest.raises(TrackingError, match="must hold the run of shoes-1/trial-0007"):
        find("trial-0007")
    with pytest.raises(TrackingError, match="must take models and show runs, got: "):
        find_run("shoes", uri=uri, experiment="mine", sweep="it's", trial="trial-0002")
    for name in ("", "shoes/best", "shoes:1"):
        with pytest.raises(UserError, match="--register must be a name that MLflow takes, got '"):
            find("trial-0002", name)


@pytest.mark.ray
@pytest.mark.soak
def test_a_sweeps_best_is_had_back_from_a_server(
    root: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses commands from the sweep to the export, then only MLflow's client, which has no root."""
    (root / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    own = ["--root", str(root / "own")]
    _command(root, "sweep", "spec.yaml", "--name", "small-1", *own)
    told = _command(root, "export", "small-1", "--to", "out", "--register", "shoes", *own)
    assert told.endswith("registered: models:/shoes/1\n")

    from mlflow import MlflowClient
    from mlflow.artifacts import download_artifacts

    client = MlflowClient()
    [run] = [r for r in client.search_runs(["1"]) if "mtcon.trial" in r.data.tags]
    assert client.get_model_version("shoes", "1").run_id == run.info.run_id
    got = download_artifacts("models:/shoes/1", dst_path=str(root / "got"))
    model = torch.export.load(Path(got) / "model.pt2").module()
    best = root / "own" / "sweeps" / "small-1" / "checkpoints" / "trial-0000" / "model.pt"
    opened = open_checkpoint(best, root=root / "own", callbacks=Callbacks())
    images = np.array(opened.dataset.images[:5])
    expected = extract_features(
        opened.network, images, np.arange(5), opened.spec.views, batch_size=5,
        device=torch.device("cpu"),
    )  # fmt: skip
    found = model(torch.from_numpy(images))["embedding"]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def _command(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mtcon_ray", *words],
        cwd=folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
