"""Tests of the evaluation of a checkpoint."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from unittest.mock import Mock, patch

import pytest
import torch

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.errors import SpecError
from mtcon_ray.export import trained_network
from mtcon_ray.export.trained_network import evaluate_checkpoint, load_network
from mtcon_ray.spec.encoders import EncoderSpec
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, with_values
from mtcon_ray.sweep.run import train_once
from tests import specs
from tests.models.test_weights import fill_cache


def changed_data(*arguments: Any, **options: Any) -> Dataset:
    return replace(open_dataset(*arguments, **options), fingerprint="another")


@pytest.fixture
def spec() -> RunSpec:
    """Returns a spec that trains for seconds on synthetic images, without a tracking server."""
    data = {"kind": "synthetic", "num_items": 120, "held_out": ["tilt"]}
    return parse_spec({**specs.TINY, "name": "tiny", "data": data})


def test_checkpoint_is_measured_again_also_on_other_labels(spec: RunSpec, tmp_path: Path) -> None:
    results = train_once(spec, root=tmp_path, callbacks=Callbacks())
    (result,) = results.trials
    best = results.folder_of(result) / "model.pt"
    overrides = ["evaluate.bootstrap=30", "data.held_out=[mark]", "data.tasks=[colour]"]
    told = Mock()
    values = evaluate_checkpoint(best, root=tmp_path, overrides=overrides, callbacks=told)
    told.on_note.assert_not_called()  # other data are wanted
    with patch.object(trained_network, "open_dataset", changed_data):
        evaluate_checkpoint(best, root=tmp_path, callbacks=told)
    assert "the data have changed since the training" in told.on_note.call_args.args[0]
    accuracies = {name for name in values if "/accuracy/" in name}
    assert accuracies == {"test/accuracy/colour", "heldout/accuracy/mark"}
    assert result.status == "FINISHED"
    for path, part in {"model.head_dim": "model", "evaluate.every": "evaluate.every"}.items():
        with pytest.raises(SpecError, match=f"got {part}: .* belongs to the checkpoint"):
            evaluate_checkpoint(best, root=tmp_path, overrides=[f"{path}=4"], callbacks=told)


def test_a_checkpoint_does_not_need_the_weights_that_its_training_started_from(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training read them from the store, since torchvision's cache and the network are gone."""
    fill_cache(tmp_path / "torch", monkeypatch)
    encoder = {"name": "resnet18", "weights": "imagenet"}
    # Without training the kept network has the initial parameters.
    spec = with_values(spec, {"method": {"name": "none"}, "model.encoder": encoder})
    root = tmp_path / "root"
    train_once(spec, root=root, name="one", callbacks=Callbacks())
    shutil.rmtree(tmp_path / "torch")
    train_once(spec, root=root, name="two", callbacks=Callbacks())
    shutil.rmtree(root / "store" / "weights")
    place = "checkpoints/trial-0000/model.pt"
    networks = [load_network(root / "sweeps" / name / place)[1] for name in ("one", "two")]
    one, two = (network.encoder.state_dict() for network in networks)
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_a_plugin_s_own_field_weights_is_kept(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(EncoderSpec):
        weights: Literal["a", "b"] = "a"

    model = spec.model.model_copy(update={"encoder": Own()})
    read: Any = spec.model_copy(update={"model": model}), Mock(), {"network": {}}
    build = Mock()
    for name, fake in (("_load", lambda _: read), ("_fill", Mock()), ("build_network", build)):
        monkeypatch.setattr(trained_network, name, fake)
    load_network(tmp_path / "model.pt")
    assert build.call_args.args[0].encoder == Own()
