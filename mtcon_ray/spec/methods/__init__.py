"""Sections of the training methods. Importing the package fills the table of methods."""

from mtcon_ray.spec.methods import self_supervised, supervised
from mtcon_ray.spec.methods.base import MethodSpec

__all__ = ["MethodSpec", "self_supervised", "supervised"]
