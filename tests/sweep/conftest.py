"""A root and a small spec for sweeps."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.base.paths import mlflow_database, sweep_folder
from tests.sweep.small_sweeps import TINY
from tests.sweep.written_sweep import write_sweep


@pytest.fixture(scope="module")
def held_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Holds a local Ray for all tests of a module: its start takes ten seconds."""
    from mtcon_ray.cluster.connection import connected, sweep_environment

    with connected(tmp_path_factory.mktemp("ray") / "ray.log", sweep_environment(1)):
        yield


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


@pytest.fixture
def folder(root: Path) -> Path:
    """Returns a sweep of three trials whose records agree. The last trial was interrupted."""
    folder = sweep_folder(root, "shoes-1")
    write_sweep(folder)
    return folder
