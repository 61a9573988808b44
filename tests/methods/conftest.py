"""The synthetic images of the methods' tests."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the directory of the synthetic images, which are made once for all methods."""
    return tmp_path_factory.mktemp("store")
