"""Sections of the training methods. Importing the package fills the table of methods."""

from mtcon_ray.spec.methods import self_supervised, supervised

__all__ = ["self_supervised", "supervised"]
