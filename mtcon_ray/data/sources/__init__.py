"""Kinds of data, a module each. Importing the package registers all modules of the folder."""

from mtcon_ray.base.registry import import_folder
from mtcon_ray.data.sources.base import SOURCES, DataSource, DataSpec
from mtcon_ray.data.sources.recipes import with_recipe_defaults

import_folder(__name__, __path__)

__all__ = ["SOURCES", "DataSource", "DataSpec", "with_recipe_defaults"]
