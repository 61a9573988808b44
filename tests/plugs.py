"""Plugins within a test: classes that leave their table at its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from mtcon_ray.base.registry import Table, rebuild
from mtcon_ray.spec import run_spec


@contextmanager
def registered(table: Table[Any], cls: type[Any]) -> Iterator[None]:
    """Registers a class with a nested `Spec`, or a section itself, by the default of its name."""
    is_section = hasattr(cls, "model_fields")
    name = (cls if is_section else cls.Spec).model_fields["name"].default
    try:
        with patch.dict(table._specs), patch.dict(table._classes):
            (table.declare if is_section else table.register)(name)(cls)
            rebuild(*run_spec.OPEN, run_spec.RunSpec)
            yield
    finally:
        rebuild(*run_spec.OPEN, run_spec.RunSpec)
