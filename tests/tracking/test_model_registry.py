"""Registration of an exported folder in MLflow's registry, and its download from there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from onnx import TensorProto, helper

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import event_file
from mtcon_ray.errors import SweepError, TrackingError
from mtcon_ray.evaluation.features import extract_features
from mtcon_ray.export.trained_network import open_checkpoint
from mtcon_ray.records.event_log import EventLog, identity
from mtcon_ray.records.events import Started
from mtcon_ray.tracking.mlflow_server import artifact_location, open_client
from mtcon_ray.tracking.model_registry import TrackedRun, find_run, register_model
from tests import specs
from tests.processes import run_python
from tests.tracking.mlflow_server import Server

pytestmark = [
    pytest.mark.mlflow,
    # MLflow 3.17.2 warns of its own types when it imports mlflow.pyfunc.
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType:UserWarning"),
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]

SPEC = {
    **specs.TINY,
    "name": "small",
    "data": {"kind": "synthetic", "num_items": 200, "tasks": ["shape"]},
    "tracking": {},
    "search": {"space": {}, "sampler": "random", "num_trials": 1},
}


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    server = Server(root)
    server.start()
    yield server
    server.kill()


def mean_of_pixels() -> onnx.ModelProto:
    """Returns a model with the input of an export; its embedding is the mean colour."""
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["N", "H", "W", 3])
    embedding = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["N", 3])
    nodes = [
        helper.make_node("Cast", ["images"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["x", "axes"], ["embedding"], keepdims=0),
    ]
    axes = helper.make_tensor("axes", TensorProto.INT64, [2], [1, 2])
    graph = helper.make_graph(nodes, "mean", [images], [embedding], [axes])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def load_from(uri: str, model: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Returns a registered model as MLflow's own reader loads it."""
    import mlflow.pyfunc

    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setenv("MLFLOW_REGISTRY_URI", uri)
    return mlflow.pyfunc.load_model(model)


def test_a_model_is_registered_beside_its_run(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"sqlite:///{root}/mlflow.db"
    client = open_client(uri)
    experiment = client.create_experiment("mine", artifact_location(uri, root))
    folder = root / "sweeps" / "shoes-1"
    EventLog(event_file(folder)).append(Started(params={}, tags={}))
    tags = {"mtcon.sweep": "shoes-1", "mtcon.trial": "trial-0002"}
    own = {**tags, "mtcon.id": identity(event_file(folder))}
    run_id = client.create_run(experiment, tags=own).info.run_id
    client.create_run(experiment, tags={**tags, "mtcon.id": "of another sweep of this name"})
    files = root / "files"
    files.mkdir()
    (files / "README.md").write_text("# shoes")
    (files / "model.pt2").write_bytes(b"weights")
    onnx.save(mean_of_pixels(), files / "model.onnx")

    def find(trial: str, name: str = "shoes") -> TrackedRun:
        return find_run(name, uri=uri, experiment="mine", folder=folder, trial=trial)

    versions = [register_model(files, "shoes", find("trial-0002")) for _ in range(2)]
    assert versions == ["1", "2"]
    version = client.get_model_version("shoes", "1")
    assert version.run_id == run_id
    assert version.description == "# shoes"

    from mlflow.artifacts import download_artifacts
    from mlflow.exceptions import MlflowException

    got = Path(download_artifacts(client.get_model_version_download_uri("shoes", "1")))
    assert (got / "model.pt2").read_bytes() == b"weights"
    model = load_from(uri, "models:/shoes/1", monkeypatch)
    images = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    found = model.predict(images)
    assert list(found) == ["embedding"]
    np.testing.assert_allclose(found["embedding"], images.mean((1, 2)), rtol=1e-6)
    with pytest.raises(MlflowException, match="uint8"):
        model.predict(images.astype(np.float32))
    assert "onnx==" in (got / "requirements.txt").read_text()
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


@pytest.mark.ray
@pytest.mark.soak
def test_a_sweeps_best_is_had_back_from_a_server(
    root: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uses commands from the sweep to the exports, then only MLflow's client, which has no root."""
    (root / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
    own = ["--root", str(root / "own")]
    command, export = ("-m", "mtcon_ray"), ("export", "small-1", "--register", "shoes", *own)
    run_python(*command, "sweep", "spec.yaml", "--name", "small-1", *own, cwd=root)
    told = run_python(*command, *export, "--out", "out", cwd=root).stdout
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
    tolerance = 1e-5 * expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    told = run_python(*command, *export, "--to", "onnx", "--out", "onnx", cwd=root).stdout
    assert "models:/shoes/2" in told
    loaded = load_from(server.uri, "models:/shoes/2", monkeypatch).predict(images)
    np.testing.assert_allclose(loaded["embedding"], expected, rtol=0, atol=tolerance)
