"""Base class of the encoders, which map an image to one pooled feature vector."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from mtcon_ray.registry import Spec, Table


class EncoderSpec(Spec):
    """Fields common to the sections of all encoders; each encoder adds its own.

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
        """True if building the encoder may refuse this section; `validate` then builds it."""
        return True

    def check(self, view_size: int) -> None:
        """Raises ValueError if views with sides of `view_size` pixels cannot be encoded."""

    def fetch_weights(self) -> None:
        """Downloads the initial parameters if the spec asks for a download.

        Called once, before several processes build the encoder. Raises SpecError if the download
        fails.
        """


class Encoder(nn.Module, ABC):
    """Base of encoders, which map [N, 3, H, W] to features [N, width].

    A subclass is registered in ENCODERS and has a nested `Spec`.
    """

    Spec: ClassVar[type[EncoderSpec]]
    width: int

    @abstractmethod
    def __init__(self, spec: EncoderSpec) -> None:
        """Builds the layers; their values come from torch's global generator, so seed it before.

        On the meta device, `weights` of the spec are only checked against the layers, and nothing
        is downloaded.
        """
        super().__init__()


ENCODERS: Table[Encoder] = Table("encoder")
