"""Sections of the kinds of data. Importing the package fills the table of kinds."""

from mtcon_ray.spec.data import own, published

__all__ = ["own", "published"]
