"""Encoders. `ENCODERS["name"]` imports the module of an encoder at its first use."""

from mtcon_ray.models.encoders.base import ENCODERS, Encoder
from mtcon_ray.spec.encoders import EncoderSpec

__all__ = ["ENCODERS", "Encoder", "EncoderSpec"]
