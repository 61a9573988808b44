"""Fixture of the trees of published data."""

from pathlib import Path

import pytest

from tests.data.sources import trees


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trees.Made:
    """Returns a function that writes the tree of a kind of data and returns its root."""
    return lambda kind, root=tmp_path: trees.make(kind, root, monkeypatch)
