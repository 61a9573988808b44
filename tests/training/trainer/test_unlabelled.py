"""Trainings on images without labels."""

from pathlib import Path
from typing import Any

import pytest

from mtcon_ray.errors import SpecError
from mtcon_ray.methods import METHODS
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.testing import start
from tests.methods.cases import make_spec

FREE = ["amcl", "barlow", "can", "lgp", "moco", "none", "simclr", "simsiam"]


def spec_of(method: str, **search: Any) -> RunSpec:
    """Returns the spec of a small training of two epochs whose data have no labels."""
    return with_values(make_spec(method, steps=2), {"data.tasks": [], "search": search})


@pytest.mark.parametrize("method", FREE)
def test_methods_that_compare_views_need_no_labels(method: str, tmp_path: Path) -> None:
    run = start(spec_of(method), tmp_path / "store", tmp_path / "run")
    value = list(run)[-1].metrics["val/rankme"]
    width, num_val = run.network.encoder.width, len(run.dataset.table.rows("val"))
    assert 0.99 / width < value <= num_val / width
    assert (run.best, list(run.report())) == (value, ["test/rankme"])


@pytest.mark.parametrize("method", sorted(set(METHODS) - set(FREE)))
def test_other_methods_are_refused(method: str) -> None:
    with pytest.raises(SpecError, match=rf"data.tasks must name a label for method {method}, got"):
        spec_of(method)
