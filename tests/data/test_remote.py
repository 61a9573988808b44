"""Tests of data in an object store: accepted URLs, downloads and their reuse."""

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from mtcon_ray.data.dataset import check_dataset, open_dataset
from mtcon_ray.data.remote import fetch, look
from mtcon_ray.data.sources import SOURCES, DataSpec
from mtcon_ray.errors import DataError, ResourceError
from tests.data.archives import pack
from tests.data.folder_store import FolderStore
from tests.data.labels import labels_of
from tests.data.object_store import object_store

CSV, IMAGES = "s3://photos/shoes/labels.csv", "s3://photos/shoes/my pictures.tar"


@pytest.fixture
def spec(store: FolderStore, files: Any) -> DataSpec:
    """Returns a spec whose CSV and whose tar of images are objects in the store.

    `files.csv` is the object itself.
    """
    files.csv = store.folder / "photos" / "shoes" / "labels.csv"
    files.csv.parent.mkdir(parents=True)
    pack(files.images, files.csv.with_name("my pictures.tar"))
    remote: DataSpec = files.spec(csv=CSV, images=IMAGES)
    return remote


def fetched(spec: DataSpec, cache: Path, report: Any = lambda *_: None) -> dict[str, str]:
    found = {field: look(url, f"data.{field}") for field, url in spec.urls().items()}
    return fetch(found, cache, report)


def opened(spec: DataSpec, cache: Path) -> np.ndarray:
    return open_dataset(spec, view_size=8, store=cache).images


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/labels.csv", "S3://bucket/labels.csv",
        "s3://key:canary@bucket/labels.csv", "s3://bucket/labels.csv?X-Amz-Signature=canary",
        "gs://bucket/labels.csv#canary", "s3://bucket", "s3://bucket/../labels.csv",
        "s3:///labels.csv", "az://account/container/labels.csv",
    ],
)  # fmt: skip
def test_a_url_with_anything_but_a_place_is_refused(url: str, files: Any) -> None:
    with pytest.raises(ValidationError) as told:
        files.spec(csv=url)
    assert "canary" not in told.value.errors()[0]["msg"]
    for images in ("s3://bucket/photos.zip", "s3://bucket/photos"):
        with pytest.raises(ValidationError, match=r"must end in \.tar"):
            files.spec(images=images)


def test_a_url_is_kept_as_it_is_and_a_path_starts_at_the_spec() -> None:
    given = {"images": "gs://b/a//b c/", "csv": "labels.csv", "tasks": ["kind"]}
    spec = SOURCES["table"].Spec.model_validate(given, context={"folder": "/specs"})
    assert spec.urls() == {"images": "gs://b/a//b c/"}
    assert spec.model_dump()["csv"] == "/specs/labels.csv"


def test_labels_are_read_before_images_are_downloaded(
    spec: DataSpec, files: Any, store: FolderStore, tmp_path: Path
) -> None:
    checked = check_dataset(spec, 8, tmp_path / "cache")
    assert len(checked.table) == 20
    size = files.csv.with_name("my pictures.tar").stat().st_size
    assert checked.downloads == {CSV: 0, IMAGES: size}
    files.frame.loc[3, "image"] = "../secret.jpg"
    files.spec()
    with pytest.raises(DataError, match=r"must name files inside s3://.*in row 5"):
        check_dataset(spec, 8, tmp_path / "cache")
    assert store.asked("GET") == ["labels.csv"] * 2


def test_images_are_those_of_the_local_folder_and_come_once(
    spec: DataSpec, files: Any, store: FolderStore, tmp_path: Path
) -> None:
    local = opened(files.spec(), tmp_path / "other")
    heard: list[tuple[int, int]] = []
    cache, archive = tmp_path / "root" / "cache", files.csv.with_name("my pictures.tar")
    fetched(spec, cache, lambda *counts: heard.append(counts))
    total = archive.stat().st_size + files.csv.stat().st_size
    assert heard[-1] == (total, total)
    assert (opened(spec, cache) == local).all()
    assert sorted(store.asked("GET")) == ["labels.csv", "my pictures.tar"]
    made = [p for p in (cache / "remote").rglob("*") if p.is_dir()]
    assert {p.stat().st_mode & 0o77 for p in (cache, cache / "remote", *made)} == {0}


def test_a_folder_of_objects_is_read_like_a_folder(
    spec: DataSpec, files: Any, store: FolderStore, tmp_path: Path
) -> None:
    shutil.copytree(files.images, store.folder / "photos" / "deep")
    (store.folder / "photos" / "deep" / "more").mkdir()
    (store.folder / "photos" / "deep" / "more" / "unlisted.jpg").write_bytes(b"x")
    remote = opened(spec.model_copy(update={"images": "s3://photos/deep/"}), tmp_path / "cache")
    assert (remote == opened(files.spec(), tmp_path / "other")).all()


@pytest.mark.parametrize("url", ["s3://photos/no.csv", "s3://photos/no/"])
def test_what_is_not_there_is_said(store: FolderStore, url: str) -> None:
    with pytest.raises(DataError, match=rf"^data\.csv not found: nothing is stored at {url}$"):
        look(url, "data.csv")


def test_a_download_that_does_not_fit_leaves_nothing(
    spec: DataSpec, files: Any, store: FolderStore, tmp_path: Path
) -> None:
    found = look(IMAGES, "data.images")
    with pytest.raises(ResourceError, match="needs 1e"):
        fetch({"images": found._replace(sizes={"": 10**18})}, tmp_path)
    assert store.asked("GET") == []
    files.csv.with_name("my pictures.tar").write_bytes(b"shorter")
    with pytest.raises(DataError, match=r"data\.images at s3://.* it has 7 bytes instead"):
        fetch({"images": found}, tmp_path)
    assert [p.suffix for p in (tmp_path / "remote").iterdir()] == [".lock"]


def test_a_replaced_object_is_downloaded_anew(spec: DataSpec, files: Any, tmp_path: Path) -> None:
    first = fetched(spec, tmp_path)
    kinds = labels_of(spec.model_copy(update=first)).labels["kind"]
    files.frame["kind"] = files.frame["kind"].map({"a": "b", "b": "a"})
    files.spec()
    second = fetched(spec, tmp_path)
    assert first["images"] == second["images"]
    assert (labels_of(spec.model_copy(update=second)).labels["kind"] != kinds).all()


@pytest.mark.slow
def test_a_failing_store_is_asked_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed: dict[str, int] = {}

    def fault(method: str, path: str) -> int | None:
        failed[path] = failed.get(path, 0) + 1
        return 503 if failed[path] in (2, 3) else None

    with object_store(monkeypatch) as server:
        url = server.put("my labels.csv", b"image,kind")
        server.fault = fault
        place = fetch({"csv": look(url, "data.csv")}, tmp_path)["csv"]
        assert Path(place).read_bytes() == b"image,kind"
        assert max(failed.values()) > 3
        os.utime(Path(place).parent, (0, 0))
        fetch({"csv": look(url, "data.csv")}, tmp_path)
        assert Path(place).parent.stat().st_mtime > 0, "it is used, see discard_unused"
        with pytest.raises(DataError, match=r"^(cannot read )?data\.csv .*at s3://") as told:
            look("s3://nobucket/x.csv", "data.csv")
        assert "canary" not in str(told.value)
