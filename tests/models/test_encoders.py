"""Encoders return pooled features of their width; ResNets load torchvision's weights."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.error import URLError

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torchvision.models import ResNet18_Weights, resnet18

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders import ENCODERS
from mtcon_ray.models.encoders.base import fetch_weights
from mtcon_ray.models.encoders.torchvision import ResNet18
from mtcon_ray.spec.run_spec import dump_spec, load_spec
from tests.models.test_vit import images

WIDTHS = {"resnet18": 512, "resnet50": 2048, "small": 256, "timm": 2048, "torchvision": 512}
WIDTHS |= {"vit": 192, "handcrafted": 192 + 900 + 64}
NEEDS_TIMM = pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")
BUILDABLE = [pytest.param(n, marks=NEEDS_TIMM) if n == "timm" else n for n in ENCODERS]
NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm)


@pytest.mark.parametrize("name", BUILDABLE)
def test_every_encoder_gives_features_of_its_width(name: str) -> None:
    """Ranks can share every norm. Subclasses of batch norm would lose what they add to it."""
    spec, found = ENCODERS[name].Spec(name=name), []
    for seed in (0, 1):
        torch.manual_seed(seed)
        encoder = ENCODERS[name](spec)
        found.append(encoder.eval()(images(2, 32, 32)))
    assert found[1].shape == (2, encoder.width) == (2, WIDTHS[name])
    assert spec.is_random != torch.equal(*found)
    if spec.is_random:
        found[1].sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    norms = [m for m in encoder.modules() if isinstance(m, NORMS)]
    assert bool(norms) == spec.is_random
    assert all(type(m) in (nn.BatchNorm2d, nn.LayerNorm) for m in norms)


FIRST_AND_LAST = [
    ({}, -0.006835894659161568, 0.0328647717833519),
    ({"stem": "small"}, 0.0071451663970947266, -0.002041558036580682),
    ({"stages": 3}, -0.00940740667283535, 0.00540625024586916),
]


@pytest.mark.parametrize(("fields", "first", "last"), FIRST_AND_LAST)
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
    theirs = resnet18(weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "weights.pt")
    ours = ResNet18(ResNet18.Spec(stages=3, weights=str(tmp_path / "weights.pt"))).eval()
    maps: list[Tensor] = []
    theirs.layer3.register_forward_hook(lambda _, __, h: maps.append(h))
    theirs(images(2, 112, 112))  # a map of 7 x 7
    h_ND = ours(images(2, 112, 112))
    assert h_ND.shape == (2, ours.width) == (2, 256)
    torch.testing.assert_close(h_ND, maps[0].mean(dim=(2, 3)))


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.urlopen", Mock(side_effect=URLError("no route to host")))
    spec = ResNet18.Spec(weights="imagenet")
    store = tmp_path / "store"
    for ask in (lambda: fetch_weights(spec, store), lambda: ResNet18(spec)):
        with pytest.raises(SpecError, match=r"no route to host.*set model\.encoder\.w") as caught:
            ask()
        assert ResNet18_Weights.IMAGENET1K_V1.url in str(caught.value)
    assert [path.name for path in (store / "weights").iterdir() if path.is_dir()] == []


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
    for name in ("IMAGENET1K_V2", "Imagenet", "random"):
        rule = rf"must be null, imagenet, IMAGENET1K_V1 or the path of a state.* got '{name}'"
        with pytest.raises(SpecError, match=rule):
            weights(f"{field}={name}")
        (tmp_path / "here" / name).touch()
        assert weights(f"{field}={name}") == str(tmp_path / "here" / name)
