"""Fixture of an object store that is a folder."""

from pathlib import Path

import pytest

from tests.data.folder_store import FolderStore, folder_store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    return folder_store(tmp_path / "store", monkeypatch)
