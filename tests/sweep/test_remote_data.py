"""A sweep whose labels and images are in an S3 store."""

import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.cli.main import program
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep.run import run_sweep
from tests import specs
from tests.data.conftest import TableFiles
from tests.data.object_store import ObjectStore, object_store

pytestmark = [
    pytest.mark.soak,
    pytest.mark.ray,
    pytest.mark.mlflow,
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning"),
]


def command(*words: str | Path) -> str:
    """Runs a command in this process, since a new process takes seconds; returns its output."""
    done = CliRunner().invoke(program, [str(word) for word in words])
    assert done.exit_code == 0, done.output
    return done.output


def spec_of(s3: ObjectStore, folder: Path) -> dict[str, Any]:
    files = TableFiles(folder)
    data = files.spec(tasks=["kind", "tone"]).model_dump(mode="json")
    with tarfile.open(folder / "pictures.tar", "w") as tar:
        tar.add(files.images, arcname=".")
    return {
        **specs.SHORT,
        "name": "remote",
        "data": {
            **data,
            "csv": s3.put("labels.csv", files.csv),
            "images": s3.put("pictures.tar", folder / "pictures.tar"),
        },
        "train": {"epochs": 1, "warmup_epochs": 0, "batch_size": 4},
        # Each trial opens the data again.
        "search": {**specs.GRID, "space": {"data.seed": {"grid": [0, 1]}}},
    }


def test_a_sweep_downloads_once_and_says_so_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validate and plan read only the labels; trials send no request to the store."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    spec, root = tmp_path / "spec.yaml", tmp_path / "root"
    with object_store(monkeypatch) as s3:
        spec.write_text(yaml.safe_dump(spec_of(s3, tmp_path)))
        command("validate", spec, "--set", f"storage.root={root}")
        lines = " ".join(command("plan", spec, "--root", root).split())
        assert "download 61.4 kB of s3://photos/pictures.tar, once" in lines
        assert lines.count(" download ") == 1, "the labels have been read already"
        assert (s3.reads("labels.csv"), s3.reads("pictures.tar")) == (1, 0)
        before: list[int] = []

        class Listening(Callbacks):
            def on_start(self, name: str, folder: Path, plan: Any) -> None:
                before.append(len(s3.log.lines))

        results = run_sweep(load_spec(spec), root=root, callbacks=Listening())
        assert [trial.status for trial in results.trials] == ["FINISHED"] * 2
        assert (s3.reads("labels.csv"), s3.reads("pictures.tar")) == (1, 1)
        assert before == [len(s3.log.lines)]
    written = [p for p in root.rglob("*") if p.is_file()]
    assert [p for p in written if b"canary" in p.read_bytes()] == []
    (stored,) = (root / "sweeps").glob("remote-1/spec.yaml")
    assert yaml.safe_load(stored.read_text())["data"]["csv"] == "s3://photos/labels.csv"
