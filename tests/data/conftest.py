"""Fixtures: a small table of JPEGs that a test may modify, an object store, published trees."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mtcon_ray.spec.data.own import TableSpec
from tests.data.folder_store import FolderStore, folder_store
from tests.data.sources import trees
from tests.data.sources.downloads import save_image


class TableFiles:
    """A folder of 20 images and their CSV, with label columns kind (a, b) and tone."""

    def __init__(self, root: Path) -> None:
        self.images = root / "pictures"
        self.csv = root / "labels.csv"
        names = [f"{row}.jpg" for row in range(20)]
        for row, name in enumerate(names):
            save_image(self.images / name, 12 * row, (8, 12))
        columns = {
            "image": names,
            "split": ["train", "train", "train", "val", "test"] * 4,
            "kind": ["b", "a"] * 10,
            "tone": ["dark", "dark", "light", "light"] * 5,
        }
        self.frame = pd.DataFrame(columns).astype(object)

    def spec(self, **fields: Any) -> TableSpec:
        """Writes the frame to the CSV; returns the spec of the table."""
        self.frame.to_csv(self.csv, index=False)
        given = {"images": str(self.images), "csv": str(self.csv), "tasks": ["kind"]} | fields
        return TableSpec.model_validate(given)


@pytest.fixture
def files(tmp_path: Path) -> TableFiles:
    """Returns 20 images of 8 x 12 pixels, of grey level 12 x row, with two label columns."""
    return TableFiles(tmp_path)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    """Returns an object store in which any URL may be written."""
    return folder_store(tmp_path / "store", monkeypatch)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trees.Made:
    """Returns a function that writes the tree of a kind of data and returns its root."""
    return lambda kind, root=tmp_path: trees.make(kind, root, monkeypatch)
