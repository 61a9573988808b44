"""Fixtures: a small data set."""

import pytest

from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.data.sources import SOURCES


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Returns 40 synthetic images."""
    spec = SOURCES["synthetic"].Spec.model_validate({"kind": "synthetic", "num_items": 40})
    return open_dataset(spec, view_size=16, store=tmp_path_factory.mktemp("store"))
