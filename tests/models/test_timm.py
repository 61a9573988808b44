"""timm's backbones: the same features as timm's own models, and errors if they are missing."""

import sys
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from mtcon_ray.errors import SpecError
from mtcon_ray.models.encoders.timm import Timm

needs_timm = pytest.mark.skipif(find_spec("timm") is None, reason="the extra timm is not installed")


def test_without_the_library_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(SpecError, match=r"pip install 'mtcon-ray\[timm\]'"):
        Timm(Timm.Spec())


@needs_timm
def test_an_unknown_model_is_refused_with_near_names() -> None:
    with pytest.raises(SpecError, match="got 'tresnet_n'; near it: tresnet_m"):
        Timm(Timm.Spec(model="tresnet_n"))


@needs_timm
def test_tresnet_computes_what_timm_s_own_does() -> None:
    """Splitting its combined batch norms and activations does not change the features."""
    import timm

    x_NCHW = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    theirs = timm.create_model("tresnet_m", num_classes=0)
    torch.manual_seed(1)
    ours = Timm(Timm.Spec())
    assert ours.width == 2048
    assert torch.equal(ours(x_NCHW), theirs(x_NCHW))
    assert any(isinstance(m, nn.LeakyReLU) for m in ours.modules())
