"""Sections of the training methods. Importing the package fills the table of methods."""

from mtcon_ray.spec.methods import adaptive, self_supervised, supervised, triplet
from mtcon_ray.spec.methods.base import MethodSpec

__all__ = ["MethodSpec", "adaptive", "self_supervised", "supervised", "triplet"]
