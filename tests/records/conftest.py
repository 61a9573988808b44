"""Fixture of an object store that is a folder."""

from tests.data.conftest import store

__all__ = ["store"]
