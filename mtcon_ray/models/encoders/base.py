"""Base class of the encoders, which map an image to a pooled feature vector."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, Self

from torch import nn

from mtcon_ray.base.registry import Spec, Table


class EncoderSpec(Spec):
    """Fields common to the sections of all encoders. Each encoder adds further fields.

    `has_batch_norm` is False if the features of an image do not depend on the rest of the batch.
    """

    has_batch_norm: ClassVar[bool] = True

    name: str

    @property
    def is_random(self) -> bool:
        """True if the features before training depend on the seed."""
        return True

    @property
    def is_checked_by_building(self) -> bool:
        """True if building the encoder may refuse this section. `validate` then builds it."""
        return True

    def check(self, view_size: int) -> None:
        """Raises ValueError if views with sides of `view_size` pixels cannot be encoded."""

    def fetch_weights(self, store: Path) -> None:
        """Downloads the initial parameters into the store if the spec asks for a download.

        Called once by the driver, before processes on other nodes build the encoder. Raises
        SpecError if the download fails, ResourceError if the store cannot be written.
        """

    def with_fetched(self, store: Path) -> Self:
        """Returns the section with the paths of the downloads stored by `fetch_weights`."""
        return self

    def without_weights(self) -> Self:
        """Returns the section of the same encoder with random initial parameters."""
        return self


class Encoder(nn.Module, ABC):
    """Base of encoders, which map [N, 3, H, W] to features [N, width].

    A subclass is registered in ENCODERS and has a nested `Spec`.

    `left_out` has the prefixes of unused keys in files of weights, such as the keys of the
    classifier.
    """

    Spec: ClassVar[type[EncoderSpec]]
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

    def check_images(self, view_size: int) -> None:
        """Raises SpecError if the encoder refuses images with sides of `view_size` pixels.

        Called on the meta device, for encoders whose section is checked by building.
        """


ENCODERS: Table[Encoder] = Table("encoder")
