"""Plugins within a test: classes that leave their table at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mtcon_ray.base.registry import Table
from mtcon_ray.spec import run_spec


@contextmanager
def registered(table: Table[Any], cls: type[Any]) -> Iterator[None]:
    """Registers a class with a nested `Spec` for a while, under the default of its name."""
    name = cls.Spec.model_fields["name"].default
    try:
        with patch.dict(table._specs), patch.dict(table._classes):
            table.register(name)(cls)
            run_spec.rebuild()
            yield
    finally:
        run_spec.rebuild()
