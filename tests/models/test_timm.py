"""timm's backbones: the same features as timm's own models, and errors if they are missing."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from mtcon_ray.errors import SpecError
from mtcon_ray.export.model import ExportedModel
from mtcon_ray.export.write import _states
from mtcon_ray.models.encoders.base import fetch_weights
from mtcon_ray.models.encoders.timm import Timm
from mtcon_ray.models.network import Network, build_network
from mtcon_ray.spec.encoders import ModelSpec
from mtcon_ray.spec.run_spec import parse_spec
from tests.models.test_weights import PLAIN, features


def test_without_the_library_its_installation_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(SpecError, match=r"pip install 'mtcon-ray\[timm\]'"):
        Timm(Timm.Spec())


def test_tresnet_computes_what_timm_s_own_does() -> None:
    """Splitting its combined batch norms and activations does not change the features."""
    timm = pytest.importorskip("timm", reason="the extra timm is not installed")
    x_NCHW = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    theirs = timm.create_model("tresnet_m", num_classes=0)
    torch.manual_seed(1)
    ours = Timm(Timm.Spec())
    assert ours.width == 2048
    assert torch.equal(ours(x_NCHW), theirs(x_NCHW))
    assert any(isinstance(m, nn.LeakyReLU) for m in ours.modules())


TINY = "test_byobnet"  # its batch norms contain their activations


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> nn.Module:
    """Returns the published network of a small model. A folder is the hub."""
    timm = pytest.importorskip("timm", reason="the extra timm is not installed")
    torch.manual_seed(7)
    net: nn.Module = timm.create_model(TINY)
    net.train()(torch.randn(4, 3, 32, 32))  # moments of batch norm differ from the initial ones
    hub = tmp_path / "hub"
    hub.mkdir()
    save_file(net.state_dict(), hub / "model.safetensors")
    description = {"architecture": TINY, "pretrained_cfg": net.pretrained_cfg}
    (hub / "config.json").write_text(json.dumps(description))

    def fetch(repo_id: str, filename: str, **_: Any) -> str:
        if not (hub / filename).exists():
            raise OSError("no route to host")
        return str(hub / filename)

    monkeypatch.setattr("timm.models._hub.hf_hub_download", fetch)
    net.reset_classifier(0)  # type: ignore[operator]
    return net


@pytest.mark.parametrize("model", [TINY, f"{TINY}.r160_in1k", "hf-hub:someone/tiny"])
def test_published_weights_are_fetched_once_and_then_read_from_the_store(
    model: str, published: nn.Module, tmp_path: Path
) -> None:
    encoder = {"name": "timm", "model": model, "weights": "pretrained"}
    spec = ModelSpec.model_validate({"encoder": encoder})
    direct = build_network(spec, PLAIN, 0)
    fetch_weights(spec.encoder, tmp_path / "store")
    # Nodes read config.json from the library's cache or the hub.
    (tmp_path / "hub" / "model.safetensors").unlink()
    network = build_network(spec, PLAIN, 0, store=tmp_path / "store")
    assert torch.equal(features(network.encoder), features(published))
    torch.testing.assert_close(network.state_dict(), direct.state_dict(), rtol=0, atol=0)
    with pytest.raises(SpecError, match="timm cannot provide model"):
        build_network(spec, PLAIN, 0)


def test_a_file_with_timms_own_keys_fits(published: nn.Module, tmp_path: Path) -> None:
    """Also where batch norm and activation are one layer of timm's and two of ours."""
    ours = Timm(Timm.Spec(model=TINY, weights=str(tmp_path / "hub" / "model.safetensors")))
    assert any("bn.0." in key for key in ours.state_dict())
    assert torch.equal(features(ours), features(published))
    # An export's keys are timm's own.
    exported = _states(ExportedModel(Network(ours, {}), {}, parse_spec({"name": "a"})))
    published.load_state_dict(exported["weights.safetensors"])


LACKING = [
    (f"{TINY}.c", r"Invalid pretrained tag \(c\)"),
    ("ftp:x/y", "Unknown model source 'ftp'|AssertionError"),
    ("resnet19", "Unknown model"),
]


@pytest.mark.parametrize(("model", "problem"), LACKING)
def test_what_timm_lacks_is_refused_before_a_download(model: str, problem: str) -> None:
    pytest.importorskip("timm", reason="the extra timm is not installed")
    with torch.device("meta"), pytest.raises(SpecError, match=problem):
        Timm(Timm.Spec(model=model))
