"""Initial parameters: files of each format, downloads in the store, and what is refused."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torchvision.models import ResNet18_Weights, resnet18

from mtcon_ray.errors import CheckpointError, SpecError
from mtcon_ray.models.encoders import ENCODERS, Encoder
from mtcon_ray.models.encoders.base import fetch_weights
from mtcon_ray.models.encoders.torchvision import ResNet18, Torchvision
from mtcon_ray.models.network import build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.training import checkpoint
from tests.problems import projections

SMALL: dict[str, dict[str, Any]] = {
    "small": {"width": 4},
    "vit": {"patch": 8, "width": 16, "depth": 1, "heads": 2},
    "resnet18": {"stem": "small", "stages": 3},
    "torchvision": {"model": "mobilenet_v3_small"},
}
PLAIN = projections(("a",), dim=4)


def make(name: str, weights: Path | str | None = None, **fields: Any) -> Encoder:
    """Returns an encoder of a small size with the weights of a file."""
    chosen = None if weights is None else str(weights)
    spec = {"name": name, **SMALL.get(name, {}), **fields, "weights": chosen}
    return ENCODERS[name](ENCODERS[name].Spec.model_validate(spec))


def features(encoder: nn.Module) -> Tensor:
    x_NCHW = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        h_ND: Tensor = encoder.eval()(x_NCHW)
    return h_ND


def write(encoder: Encoder, path: Path) -> Path:
    """Writes a file of the format that its name says."""
    keys, state = encoder.file_keys(), encoder.state_dict()
    if path.name == "model.pt":
        network = {f"encoder.{key}": value for key, value in state.items()}
        network["heads.0.0.weight"] = torch.ones(1)
        checkpoint.save(path, {"network": network, "spec": "{}", "sizes": {"a": 2}})
    else:
        save = save_file if path.suffix == ".safetensors" else torch.save
        save({keys[key]: value for key, value in state.items()}, path)
    return path


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("file", ["weights.pt", "any.safetensors", "model.pt"])
def test_an_encoder_starts_from_a_file_of_any_format(name: str, file: str, tmp_path: Path) -> None:
    source = make(name)
    source.train()(torch.randn(4, 3, 32, 32))  # moments of batch norm differ from the initial ones
    path = write(source, tmp_path / file)
    assert not torch.equal(features(make(name)), features(source))
    assert torch.equal(features(make(name, path)), features(source))


def test_a_file_of_another_shape_is_refused_on_the_meta_device(tmp_path: Path) -> None:
    for file in ("weights.pt", "model.pt"):
        path = write(make("small"), tmp_path / file)
        with torch.device("meta"):
            make("small", path)
            with pytest.raises(CheckpointError, match=r"does not fit .* stem\.0\.weight.*; choose"):
                make("small", path, width=8)
            with pytest.raises(CheckpointError, match=r'Missing key.*"embed\.weight", .*; Unexp'):
                make("vit", path)


def test_counters_of_batch_norm_may_be_missing(tmp_path: Path) -> None:
    """torchvision's first files of ResNet-18 and ResNet-50 are older than these counters."""
    theirs = resnet18()
    state = {k: v for k, v in theirs.state_dict().items() if "num_batches_tracked" not in k}
    torch.save(state, tmp_path / "weights.pt")
    ours = ResNet18(ResNet18.Spec(weights=str(tmp_path / "weights.pt")))
    theirs.fc = nn.Identity()
    assert torch.equal(features(ours), features(theirs))


DAMAGED = [
    (None, "cannot be read: No such file"),
    ("pipe", "cannot be read: it is not a regular file"),
    (b"", "is not a whole file of plain tensors"),
    (b"{}", "is not a whole file of plain tensors"),
]


@pytest.mark.parametrize("name", ["a.safetensors", "a.pt"])
@pytest.mark.parametrize(("content", "problem"), DAMAGED)
def test_a_damaged_file_is_refused(name: str, content: Any, problem: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content == "pipe":
        os.mkfifo(path)
    with pytest.raises(CheckpointError, match=rf"{name} {problem}.*; write one with torch\.save"):
        make("small", path)


SOMETHING_ELSE = [
    (nn.Linear(2, 2), "tensors"),
    ([torch.ones(1)], "tensors"),
    ({"model": {}}, "tensors"),
    # Layers would take the real parts, with a warning of torch.
    ({"stem.0.weight": torch.ones(1) * 1j}, "must hold real numbers"),
]


@pytest.mark.parametrize(("content", "problem"), SOMETHING_ELSE)
def test_a_file_of_something_else_is_refused(content: object, problem: str, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=problem):
        make("small", tmp_path / "a.pt")


def test_a_compressed_file_is_refused(tmp_path: Path) -> None:
    """A small file of zeros may unpack to more than the memory."""
    with ZipFile(write(make("small"), tmp_path / "a.pt")) as whole:
        parts = {name: whole.read(name) for name in whole.namelist()}
    with ZipFile(tmp_path / "a.pt", "w", ZIP_DEFLATED) as file:
        for name, part in parts.items():
            file.writestr(name, part)
    with pytest.raises(CheckpointError, match="not compressed"):
        make("small", tmp_path / "a.pt")


def fill_cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a file of ResNet-18 in a new cache of torchvision. Removes the network."""
    file = home / "hub" / "checkpoints" / Path(ResNet18_Weights.IMAGENET1K_V1.url).name
    file.parent.mkdir(parents=True)
    torch.save(resnet18().state_dict(), file)
    monkeypatch.setenv("TORCH_HOME", str(home))
    monkeypatch.delattr("torch.hub.urlopen")
    return file


DOWNLOADS = [
    {"name": "resnet18", "weights": "imagenet"},
    {"name": "torchvision", "model": "resnet18", "weights": "IMAGENET1K_V1"},
    {"name": "torchvision", "model": "resnet18", "weights": "DEFAULT"},
]


@pytest.mark.parametrize("encoder", DOWNLOADS)
def test_downloads_are_kept(encoder: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial on another node has torchvision's cache neither in its home nor in memory."""
    spec = ModelSpec.model_validate({"encoder": encoder})
    store, only = tmp_path / "store", fill_cache(tmp_path / "torch", monkeypatch)
    direct = build_network(spec, PLAIN, 0)
    fetch_weights(spec.encoder, store)
    fetch_weights(spec.encoder, store)
    theirs = resnet18()
    theirs.load_state_dict(torch.load(only, weights_only=True))
    theirs.fc = nn.Identity()
    only.unlink()
    network = build_network(spec, PLAIN, 0, store=store)
    assert torch.equal(features(network.encoder), features(theirs))
    # The download draws no random numbers, so heads are the same with and without the store.
    torch.testing.assert_close(network.state_dict(), direct.state_dict(), rtol=0, atol=0)


LACKING = [
    ("resnet35", None, "got 'resnet35'; did you mean 'resnet"),
    ("googlenet", None, " with one classifier, got 'googlenet'"),
    ("resnet34", "IMAGENET1K_V2", "for resnet34, IMAGENET1K_V1 or DEFAULT, got IMAGENET1K_V2"),
]


@pytest.mark.parametrize(("model", "weights", "problem"), LACKING)
def test_what_torchvision_lacks_is_not_downloaded(model: str, weights: Any, problem: str) -> None:
    spec = Torchvision.Spec(model=model, weights=weights)
    assert spec.is_checked_by_building
    with torch.device("meta"), pytest.raises(SpecError, match=f"must be .*torchvision.*{problem}"):
        Torchvision(spec)


def test_a_vit_has_the_image_size_of_its_weights() -> None:
    spec = Torchvision.Spec(model="vit_b_16", weights="IMAGENET1K_SWAG_E2E_V1")
    with torch.device("meta"), patch("mtcon_ray.models.encoders.torchvision.load_weights"):
        Torchvision(spec).check_images(384)


WIDTHS = [
    *(("swin_t", 768), ("vit_b_32", 768), ("vgg11", 4096), ("densenet121", 1024)),
    *(("maxvit_t", 512), ("mobilenet_v3_small", 1024), ("squeezenet1_1", 512)),
]


@pytest.mark.parametrize(("model", "width"), WIDTHS)
def test_classifiers_of_torchvision_are_removed_and_sizes_checked(model: str, width: int) -> None:
    with torch.device("meta"):
        encoder = Torchvision(Torchvision.Spec(model=model))
        encoder.check_images(224)
        assert encoder(torch.empty(2, 3, 224, 224)).shape == (2, encoder.width) == (2, width)
        if model.startswith("vit"):
            with pytest.raises(SpecError, match=r"views\.size .* got 64: .*Expected 224"):
                encoder.check_images(64)
