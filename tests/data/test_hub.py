"""Data on the hub of Hugging Face, of which a folder on disk takes the place."""

import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.local import LocalFileSystem

from mtcon_ray.data.dataset import check_dataset, open_dataset
from mtcon_ray.data.remote import look
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.errors import DataError
from tests.data.sources.downloads import png

URL = "hf://datasets/me/greys@refs/convert/parquet/default/"


class Hub(LocalFileSystem):  # type: ignore[misc]
    """The file system of the hub, with its files below a folder on disk."""

    cachable = False
    root = Path()
    broken: Exception | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__()

    def _strip_protocol(self, path: str) -> str:
        return path if path.startswith(str(self.root)) else f"{self.root}/{path}"

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        found = super().info(path)
        content = Path(found["name"]).read_bytes() if found["type"] == "file" else b""
        name = found["name"].removeprefix(f"{self.root}/")
        return {"name": name, "size": found["size"], "type": found["type"], "blob_id": content}

    def find(self, path: str, **options: Any) -> dict[str, dict[str, Any]]:
        if self.broken is not None:
            raise self.broken
        files = [p for p in (self.root / path).rglob("*") if p.is_file()]
        return {str(p.relative_to(self.root)): self.info(str(p)) for p in files}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of a data set on the hub, with 20 rows of train and 10 of test."""
    folder = tmp_path / "hub" / URL.removeprefix("hf://")
    for split, count in (("train", 20), ("test", 10)):
        images = [{"bytes": png(i)} for i in range(count)]
        table = pa.table({"image": images, "label": ["dog", "cat"] * (count // 2)})
        (folder / split).mkdir(parents=True)
        pq.write_table(table, folder / split / "0000.parquet")
    monkeypatch.setattr(Hub, "root", tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfFileSystem", Hub)
    return folder


def test_a_folder_of_the_hub_is_downloaded_once(hub: Path, tmp_path: Path) -> None:
    spec = SOURCES["hf"].Spec.model_validate({"folder": URL, "tasks": ["label"]})
    checked = check_dataset(spec, 8, tmp_path / "store")
    assert checked.downloads == {URL: 0}
    size = sum(file.stat().st_size for file in hub.rglob("*.parquet"))
    assert checked.found["folder"].num_bytes == size
    data = open_dataset(spec, view_size=8, store=tmp_path / "store", checked=checked)
    assert data.images[:, 0, 0, 0].tolist() == [*range(10), *range(20)]
    assert (tmp_path / "store" / "remote").is_dir()


def test_a_file_that_was_replaced_is_noticed_by_its_hash(hub: Path) -> None:
    before = look(URL, "data.folder").key
    file = hub / "test" / "0000.parquet"
    file.write_bytes(file.read_bytes()[::-1])  # the hub's listings have no times
    assert look(URL, "data.folder").key != before


def test_an_error_of_the_http_library_is_passed_on(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "broken", RuntimeError("connection refused"))
    with pytest.raises(DataError, match="connection refused; a token comes from HF_TOKEN"):
        look(URL, "data.folder")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DataError, match=r"pip install 'mtcon-ray\[hf\]'"):
        look(URL, "data.folder")
