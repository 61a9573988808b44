"""A comparison from the sections of its YAML."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest
import yaml

from mtcon_ray.comparison.comparison_spec import Comparison, load_comparison

Load = Callable[..., Comparison]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Returns a function that loads the comparison `few` with overrides and chosen systems."""

    def made(*overrides: str, only: Collection[str] = (), **sections: Any) -> Comparison:
        path = tmp_path / "few.yaml"
        path.write_text(yaml.safe_dump({"name": "few", **sections}, sort_keys=False))
        return load_comparison(path, overrides, only)

    return made
