"""What every encoder offers: images in, one pooled feature vector out."""

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import nn

from mtcon_ray.registry import Spec, Table


class EncoderSpec(Spec):
    """What every encoder's section has; each encoder adds its own fields.

    `has_batch_norm` is False where no row's features depend on other rows.
    """

    has_batch_norm: ClassVar[bool] = True

    name: str

    def check(self, view_size: int) -> None:
        """Raises ValueError if views of this many pixels a side cannot be encoded."""

    def fetch_weights(self) -> None:
        """Downloads the parameters that training starts from, where they are not files here.

        For once, before many processes build the encoder. Raises SpecError if they cannot be had.
        """


class Encoder(nn.Module, ABC):
    """Maps [N, 3, H, W] to [N, width] features. Registered in ENCODERS with a nested `Spec`."""

    Spec: ClassVar[type[EncoderSpec]]
    width: int

    @abstractmethod
    def __init__(self, spec: EncoderSpec) -> None:
        """Builds the layers with torch's global generator; call after seeding it.

        On the meta device `weights` of the spec are compared with the layers; nothing is
        downloaded.
        """
        super().__init__()


ENCODERS: Table[Encoder] = Table("encoder")
