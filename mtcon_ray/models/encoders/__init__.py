"""Encoders. Importing this package imports its whole folder, which fills `ENCODERS`."""

from mtcon_ray.base.registry import import_folder
from mtcon_ray.models.encoders.base import ENCODERS, Encoder, EncoderSpec

import_folder(__name__, __path__)

__all__ = ["ENCODERS", "Encoder", "EncoderSpec"]
