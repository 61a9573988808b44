"""Training methods. Importing this package imports its whole folder, which fills `METHODS`."""

from mtcon_ray.base.registry import import_folder
from mtcon_ray.methods.base import (
    METHODS,
    Method,
    MethodSpec,
    check_labels,
    one_epoch_if_untrained,
)

import_folder(__name__, __path__)

__all__ = ["METHODS", "Method", "MethodSpec", "check_labels", "one_epoch_if_untrained"]
