"""Base classes of the encoders, which map an image to a pooled feature vector."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from mtcon_ray.base.registry import Configured, Table
from mtcon_ray.errors import SpecError
from mtcon_ray.spec.encoders import ENCODERS as SPECS
from mtcon_ray.spec.encoders import EncoderSpec

SpecT = TypeVar("SpecT", bound=EncoderSpec)


class Encoder(Configured, nn.Module, ABC):
    """Base of encoders, which map [N, 3, H, W] to features [N, width].

    `Spec` is the section, which names the class in ENCODERS. A plugin registers its class there and
    nests its `Spec`.

    `left_out` has the prefixes of unused keys in files of weights, such as the keys of the
    classifier.
    """

    width: int
    left_out: tuple[str, ...] = ()

    @abstractmethod
    def __init__(self, spec: EncoderSpec) -> None:
        """Builds the layers. Their values come from torch's global generator, so seed it before.

        On the meta device, `weights` of the spec are only checked against the layers, and nothing
        is downloaded.
        """
        super().__init__()

    def file_keys(self) -> dict[str, str]:
        """Returns the keys in files of weights by the keys of the state dict.

        An encoder with the model of another library as `net` has the model's keys.
        """
        return {key: key.removeprefix("net.") for key in self.state_dict()}

    @classmethod
    def download(cls, spec: Any) -> Mapping[str, Tensor]:
        """Returns the parameters named by `spec.weights`, by the keys of files.

        Reads the library's own cache where it has them. Raises SpecError if the download fails.
        """
        raise NotImplementedError

    def check_images(self, view_size: int) -> None:
        """Raises SpecError if the encoder refuses images with sides of `view_size` pixels.

        Called on the meta device, for encoders whose section is checked by building.
        """


class LibraryEncoder(Encoder):
    """An encoder of another library. Its model `net` maps [N, 3, H, W] to pooled [N, width]."""

    net: nn.Module

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Returns pooled features, [N, width]."""
        h_ND: Tensor = self.net(x_NCHW)
        return h_ND

    def check_images(self, view_size: int) -> None:
        try:
            with torch.no_grad():
                self.eval()(torch.empty(2, 3, view_size, view_size))
        except NotImplementedError:
            return  # an operation without an implementation on the meta device
        # Libraries raise errors of many types for images of an unsuitable size.
        except Exception as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SpecError(
                f"views.size must be a size of images that the encoder's model takes, got "
                f"{view_size}: {reason}; take another size or model"
            ) from error


# The table of the sections, typed by what ENCODERS["name"] returns: the class of an encoder.
ENCODERS: Table[Encoder] = SPECS
