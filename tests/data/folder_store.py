"""An object store that is a folder, for tests of many requests."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from mtcon_ray.data import objects


class FolderStore(SubTreeFileSystem):  # type: ignore[misc]
    """Object store whose buckets are folders. It keeps its requests with their paths.

    `before` is called with each request and its path. It may raise OSError, as a store that fails.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder), LocalFileSystem())
        self.folder = folder
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda request, path: None

    def _ask(self, request: str, path: str) -> None:
        self.requests.append((request, path))
        self.before(request, path)

    def asked(self, request: str) -> list[str]:
        """Returns the names of the objects of all requests of a kind, without their folders."""
        return [path.rpartition("/")[2] for kind, path in self.requests if kind == request]

    def refuse(self, request: str = "", part: str = "", times: float = math.inf) -> list[str]:
        """Fails the next requests of a kind to paths with this part. Returns the list of them."""
        refused: list[str] = []

        def before(kind: str, path: str) -> None:
            if request in kind and part in path and len(refused) < times:
                refused.append(path)
                raise OSError("503 Slow Down")

        self.before = before
        return refused

    def open_output_stream(self, path: str, **options: Any) -> Any:
        self._ask("PUT", path)
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        return super().open_output_stream(path, **options)

    def open_input_stream(self, path: str, **options: Any) -> Any:
        self._ask("GET", path)
        return super().open_input_stream(path, **options)

    def open_input_file(self, path: str, **options: Any) -> Any:
        self._ask("GET", path)
        return super().open_input_file(path, **options)

    def get_file_info(self, place: Any) -> Any:
        self._ask("LIST", str(getattr(place, "base_dir", place)))
        return super().get_file_info(place)

    def delete_file(self, path: str) -> None:
        self._ask("DELETE", path)
        super().delete_file(path)

    def names(self) -> set[str]:
        """Returns the names of all objects, with their bucket."""
        files = (path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix() for path in files}


def folder_store(folder: Path, monkeypatch: pytest.MonkeyPatch) -> FolderStore:
    """Returns an object store that has the objects of all URLs in this process."""
    made = FolderStore(folder)
    monkeypatch.setattr(objects, "_open", lambda bucket, attempts: made)
    return made
