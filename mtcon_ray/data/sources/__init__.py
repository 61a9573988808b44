"""Kinds of data. `SOURCES["name"]` imports the module of a kind at its first use."""

from mtcon_ray.data.sources.files import SOURCES, DataSource
from mtcon_ray.spec.data.base import DataSpec

__all__ = ["SOURCES", "DataSource", "DataSpec"]
