"""Encoders return pooled features of their width; ResNets load torchvision's weights."""

from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.error import URLError
from zipfile import ZipFile

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torchvision.models import ResNet18_Weights, resnet18

from mtcon_ray.errors import CheckpointError, SpecError
from mtcon_ray.models.encoders import ENCODERS, Encoder
from mtcon_ray.models.encoders.resnet import ResNet18, ResNet50
from mtcon_ray.spec.run_spec import dump_spec, load_spec

WIDTHS = {
    **{"resnet18": 512, "resnet50": 2048, "small": 256, "timm": 2048, "torchvision": 512},
    "vit": 192,
    "handcrafted": 192 + 900 + 64,
}
NEEDS_TIMM = pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")
BUILDABLE = [pytest.param(n, marks=NEEDS_TIMM) if n == "timm" else n for n in ENCODERS]
NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm)


def images(side: int) -> Tensor:
    """Returns two random images [2, 3, side, side]."""
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", BUILDABLE)
def test_every_encoder_gives_features_of_its_width(name: str) -> None:
    encoder = ENCODERS[name](ENCODERS[name].Spec(name=name))
    h_ND = encoder(images(32))
    assert h_ND.shape == (2, encoder.width)
    assert encoder.width == WIDTHS.get(name, encoder.width)
    if any(True for _ in encoder.parameters()):
        h_ND.sum().backward()
    unused = [key for key, value in encoder.named_parameters() if value.grad is None]
    assert unused == []


@pytest.mark.parametrize("name", BUILDABLE)
def test_every_norm_is_one_that_ranks_can_share(name: str) -> None:
    """Layer norm needs no sharing. Subclasses of batch norm would lose what they add to it."""
    encoder = ENCODERS[name](ENCODERS[name].Spec(name=name))
    norms = [m for m in encoder.modules() if isinstance(m, NORMS)]
    assert norms or not any(True for _ in encoder.parameters())
    assert all(type(m) in (nn.BatchNorm2d, nn.LayerNorm) for m in norms)


@pytest.mark.parametrize("name", BUILDABLE)
def test_every_encoder_says_whether_its_features_depend_on_the_seed(name: str) -> None:
    spec, found = ENCODERS[name].Spec(name=name), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        found.append(ENCODERS[name](spec).eval()(images(32)))
    assert spec.is_random != torch.equal(*found)


@pytest.mark.parametrize(
    ("fields", "first", "last"),
    [
        ({}, -0.006835894659161568, 0.0328647717833519),
        ({"stem": "small"}, 0.0071451663970947266, -0.002041558036580682),
        ({"stages": 3}, -0.00940740667283535, 0.00540625024586916),
    ],
)
def test_a_seed_keeps_its_weights(fields: dict[str, Any], first: float, last: float) -> None:
    """Published results name seeds. The names of parameters are torchvision's."""
    torch.manual_seed(0)
    encoder = ResNet18(ResNet18.Spec.model_validate(fields))
    drawn = [m.weight.flatten() for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert (drawn[0][0].item(), drawn[-1][-1].item()) == (first, last)
    theirs = [key for key in resnet18(weights=None).state_dict() if not key.startswith("fc.")]
    ours = list(encoder.file_keys().values())
    assert ours == [key for key in theirs if fields.get("stages") != 3 or "layer4" not in key]


def test_three_stages_are_those_of_the_whole_network(tmp_path: Path) -> None:
    """The map has 1/16 of the image's side and 256 channels; the file has all four stages."""
    theirs = resnet18(weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pt")
    spec = ResNet18.Spec(stages=3, weights=str(tmp_path / "weights.pt"))
    ours = ResNet18(spec).eval()
    maps: list[Tensor] = []
    theirs.layer3.register_forward_hook(lambda _, __, h: maps.append(h))
    theirs(images(112))
    assert maps[0].shape == (2, 256, 7, 7)
    h_ND = ours(images(112))
    assert h_ND.shape == (2, ours.width) == (2, 256)
    torch.testing.assert_close(h_ND, maps[0].mean(dim=(2, 3)))
    assert not any("layer4" in key for key in ours.state_dict())
    with pytest.raises(ValidationError, match="stages"):
        ResNet18.Spec.model_validate({"stages": 2})


def make(kind: type[Encoder], weights: Path | str, stem: str = "imagenet") -> Encoder:
    """Returns an encoder with the weights of a file."""
    return kind(kind.Spec.model_validate({"weights": str(weights), "stem": stem}))


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(resnet18(weights=None).state_dict(), path)
    with pytest.raises(CheckpointError, match=r"weights\.pt does not fit the encoder"):
        make(ResNet50, path)
    with pytest.raises(CheckpointError, match="choose the encoder name and settings") as caught:
        make(ResNet18, path, "small")
    assert "conv1.weight of shape [64, 3, 7, 7] where the encoder has [64, 3, 3, 3]" in str(
        caught.value
    )
    state = {f"module.{key}": value for key, value in resnet18(weights=None).state_dict().items()}
    torch.save(state, path)
    with pytest.raises(CheckpointError) as caught:
        make(ResNet18, path)
    for part in (
        f"{path} does not fit the encoder: missing conv1.weight, bn1.weight, bn1.bias and ",
        "; unexpected module.conv1.weight, module.bn1.weight, module.bn1.bias and ",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["IMAGENET1K_V2", "Imagenet", "random"])
def test_an_unknown_name_of_weights_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValidationError, match=r"must be null, imagenet, IMAGENET1K_V1 or the path of a state"
    ):
        make(ResNet18, name)
    (tmp_path / name).touch()
    spec = ResNet18.Spec.model_validate({"weights": name}, context={"folder": tmp_path})
    assert spec.weights == str(tmp_path / name)


NO_WEIGHTS = "not a file of PyTorch weights (a state dict saved by torch.save)"


def zipped() -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "a")
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", f"is an empty file, {NO_WEIGHTS}"),
        (b"epoch,loss\n1,0.5\n", f"is {NO_WEIGHTS}"),
        (b"not a checkpoint", f"is {NO_WEIGHTS}"),
        (zipped(), f"is {NO_WEIGHTS}"),
        (None, "cannot be read: No such file or directory"),
    ],
    ids=["empty", "csv", "text", "zip", "none"],
)
def test_a_file_without_weights_is_refused(
    content: bytes | None, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "weights.pt"
    if content is not None:
        path.write_bytes(content)
    assert refusal_of(path) == (
        f"model.encoder.weights: {path} {problem}; write one with "
        "torch.save(model.state_dict(), path)"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (nn.Linear(2, 2), "holds more than plain tensors; write one with torch.save(model.state"),
        ([torch.ones(1)], "holds something other than tensors by name; write one with"),
        ({"model": {}}, "holds something other than tensors by name"),
    ],
)
def test_a_file_of_something_else_is_refused(content: object, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save(content, path)
    assert refusal_of(path).startswith(f"model.encoder.weights: {path} {problem}")


def refusal_of(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        make(ResNet18, path)
    return str(caught.value)


def test_imagenet_weights_without_network_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", offline)
    spec = ResNet18.Spec(weights="imagenet")
    store = tmp_path / "store"
    for ask in (lambda: ResNet18.fetch_weights(spec, store), lambda: make(ResNet18, "imagenet")):
        with pytest.raises(SpecError, match=r"no route to host.*set model\.encoder\.w") as caught:
            ask()
        assert ResNet18_Weights.IMAGENET1K_V1.url in str(caught.value)
    assert [path.name for path in (store / "weights").iterdir() if path.is_dir()] == []


def test_imagenet_weights_need_the_imagenet_stem() -> None:
    with pytest.raises(ValidationError, match="stem must be imagenet where weights is imagenet"):
        ResNet18.Spec(weights="imagenet", stem="small")


def test_weights_are_a_name_or_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path in a spec is relative to its directory, on the command line to the working one."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = tmp_path / "spec.yaml"
    path.write_text("name: x\nmodel: {encoder: {name: resnet18, weights: w.pt}}\n")

    def weights(*overrides: str) -> str:
        found: str = dump_spec(load_spec(path, overrides))["model"]["encoder"]["weights"]
        return found

    assert weights() == str(tmp_path / "w.pt")
    field = "model.encoder.weights"
    assert weights(f"{field}=v.pt") == str(tmp_path / "here" / "v.pt")
    assert weights(f"{field}=imagenet") == "imagenet"
    with pytest.raises(SpecError, match=r"must be null, imagenet, .* got 'IMAGENET1K_V2'"):
        weights(f"{field}=IMAGENET1K_V2")
    (tmp_path / "here" / "file").touch()
    assert weights(f"{field}=file") == str(tmp_path / "here" / "file")
