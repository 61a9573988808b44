"""A root, a small spec and a written sweep."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.base.paths import sweep_folder
from tests.sweep.small_sweeps import TINY
from tests.sweep.written_sweep import write_sweep
from tests.tracking.conftest import root

__all__ = ["root"]


@pytest.fixture
def spec_file(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: Any) -> Path:
        path = tmp_path / "spec.yaml"
        path.write_text(yaml.safe_dump({**TINY, **changes}))
        return path

    return write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a sweep of three trials whose records agree. The last trial was interrupted."""
    folder = sweep_folder(tmp_path, "shoes-1")
    write_sweep(folder)
    return folder
