"""A root and a small spec for sweeps."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.paths import mlflow_database
from tests.sweep.small_sweeps import TINY


@pytest.fixture
def root(tmp_path: Path, empty_database: Path) -> Path:
    """Returns a root with its own database; a copy, since MLflow takes seconds to create one."""
    path = tmp_path / "root"
    path.mkdir()
    shutil.copy(empty_database, mlflow_database(path))
    return path


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump({**TINY, **changes}))
        return path

    return write
