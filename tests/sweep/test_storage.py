"""Sweeps on a full disk, and after a failed start of Ray."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import sweep_folder
from mtcon_ray.errors import MtconError
from mtcon_ray.spec.run_spec import load_spec
from mtcon_ray.sweep.run import run_sweep

pytestmark = [pytest.mark.ray, pytest.mark.mlflow]


def test_a_ray_that_does_not_start_leaves_no_sweep(
    tmp_path: Path, spec_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray fails if its folder makes the names of its sockets too long."""
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 100)))
    path = spec_file(tracking={"offline": True})
    with pytest.raises(MtconError, match="the path is too long"):
        run_sweep(load_spec(path), root=tmp_path / "root", callbacks=Callbacks(), name="mine")
    assert not sweep_folder(tmp_path / "root", "mine").exists()
