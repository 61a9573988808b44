"""Kinds of data: one file each; the folder is the list."""

from mtcon_ray.data.sources.base import SOURCES, DataSource, DataSpec, LabelTable
from mtcon_ray.registry import import_folder

import_folder(__name__, __path__)

__all__ = ["SOURCES", "DataSource", "DataSpec", "LabelTable"]
