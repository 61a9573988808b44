"""Tests of the evaluation of a checkpoint."""

from pathlib import Path

import pytest

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.errors import SpecError
from mtcon_ray.evaluate import evaluate_checkpoint
from mtcon_ray.spec import RunSpec, parse_spec
from mtcon_ray.training_job import train_run


@pytest.fixture
def spec() -> RunSpec:
    """Returns a spec that trains for seconds on synthetic images, without a tracking server."""
    return parse_spec(
        {
            "name": "tiny",
            "data": {"kind": "synthetic", "num_items": 120, "held_out": ["tilt"]},
            "views": {"size": 16},
            "model": {"encoder": {"name": "small", "width": 4}, "head_dim": 8},
            "train": {"epochs": 1, "batch_size": 16},
            "evaluate": {"bootstrap": 20},
            "tracking": {"offline": True},
        }
    )


def test_checkpoint_is_measured_again_also_on_other_labels(spec: RunSpec, tmp_path: Path) -> None:
    result = train_run(spec, root=tmp_path, callbacks=Callbacks())
    best = tmp_path / "runs" / "tiny-1" / "model.pt"
    overrides = ["evaluate.bootstrap=30", "data.held_out=[mark]", "data.tasks=[colour]"]
    values = evaluate_checkpoint(best, root=tmp_path, overrides=overrides, callbacks=Callbacks())
    assert {key for key in values if "_std" not in key} == {
        "test/accuracy/colour",
        "test/knn/colour",
        "heldout/accuracy/mark",
        "heldout/knn/mark",
        "probe/features",
        "probe/gradient",
    }
    assert result.status == "FINISHED"


def test_a_checkpoint_keeps_its_own_model(spec: RunSpec, tmp_path: Path) -> None:
    train_run(spec, root=tmp_path, callbacks=Callbacks())
    best = tmp_path / "runs" / "tiny-1" / "model.pt"
    with pytest.raises(SpecError, match="belongs to the checkpoint"):
        evaluate_checkpoint(
            best, root=tmp_path, overrides=["model.head_dim=4"], callbacks=Callbacks()
        )
