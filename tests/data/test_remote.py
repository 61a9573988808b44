"""Tests of data in an object store: accepted URLs, downloads and their reuse."""

from collections.abc import Iterator
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
from tests.data.labels import labels_of
from tests.data.object_store import ObjectStore, object_store

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning"),
]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with object_store(monkeypatch) as store:
        yield store


@pytest.fixture
def spec(s3: ObjectStore, files: Any, tmp_path: Path) -> DataSpec:
    """Returns a spec whose CSV and whose tar of images are objects in the store."""
    files.spec()
    pack(files.images, tmp_path / "pictures.tar")
    csv = s3.put("shoes/labels.csv", files.csv)
    images = s3.put("shoes/my pictures.tar", tmp_path / "pictures.tar")
    remote: DataSpec = files.spec(csv=csv, images=images)
    return remote


def fetched(spec: DataSpec, store: Path, report: Any = None) -> dict[str, str]:
    found = {field: look(url, f"data.{field}") for field, url in spec.urls().items()}
    return fetch(found, store, report)


def opened(spec: DataSpec, store: Path, **more: Any) -> np.ndarray:
    return open_dataset(spec, view_size=8, store=store, **more).images


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/labels.csv",
        "S3://bucket/labels.csv",
        "s3://key:canary@bucket/labels.csv",
        "s3://bucket/labels.csv?X-Amz-Signature=canary",
        "gs://bucket/labels.csv#canary",
        "s3://bucket",
        "s3://bucket/../labels.csv",
        "s3:///labels.csv",
        "hf://models/user/labels.csv",
        "az://account/container/labels.csv",
    ],
)
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
    spec: DataSpec, s3: ObjectStore, tmp_path: Path
) -> None:
    store = tmp_path / "root" / "store"
    checked = check_dataset(spec, 8, store)
    assert len(checked.table) == 20
    assert s3.reads("shoes/my pictures.tar") == 0
    size = (tmp_path / "pictures.tar").stat().st_size
    assert checked.downloads == {spec.urls()["csv"]: 0, spec.urls()["images"]: size}


def test_names_that_lead_outside_are_refused_before_the_download(
    spec: DataSpec, s3: ObjectStore, files: Any, tmp_path: Path
) -> None:
    files.frame.loc[3, "image"] = "../secret.jpg"
    files.spec()
    s3.put("shoes/labels.csv", files.csv)
    with pytest.raises(DataError, match=r"must name files inside s3://.*in row 5"):
        check_dataset(spec, 8, tmp_path / "store")


def test_images_are_those_of_the_local_archive_and_come_once(
    spec: DataSpec, s3: ObjectStore, files: Any, tmp_path: Path
) -> None:
    heard: list[tuple[int, int]] = []
    store = tmp_path / "root" / "store"
    fetched(spec, store, lambda *counts: heard.append(counts))
    total = (tmp_path / "pictures.tar").stat().st_size + files.csv.stat().st_size
    assert heard[-1] == (total, total)
    local = opened(files.spec(images=str(tmp_path / "pictures.tar")), tmp_path / "other")
    assert (opened(spec, store) == local).all()
    assert s3.reads("shoes/my pictures.tar") == s3.reads("shoes/labels.csv") == 1
    made = [p for p in (store / "remote").rglob("*") if p.is_dir()]
    assert {p.stat().st_mode & 0o77 for p in (store, store / "remote", *made)} == {0}


def test_a_folder_of_objects_is_read_like_a_folder(
    spec: DataSpec, s3: ObjectStore, files: Any, tmp_path: Path
) -> None:
    for path in files.images.iterdir():
        s3.put(f"deep/{path.name}", path)
    url = s3.put("deep/more/unlisted.jpg", b"x").removesuffix("more/unlisted.jpg")
    remote = opened(spec.model_copy(update={"images": url}), tmp_path / "store")
    assert (remote == opened(files.spec(), tmp_path / "other")).all()


@pytest.mark.parametrize("url", ["s3://photos/no.csv", "s3://photos/no/", "s3://nobucket/x.csv"])
def test_what_is_not_there_is_said(s3: ObjectStore, url: str) -> None:
    with pytest.raises(DataError, match=r"^(cannot read )?data\.csv .*at s3://") as told:
        look(url, "data.csv")
    assert "canary" not in str(told.value)


def test_a_download_that_does_not_fit_leaves_nothing(
    spec: DataSpec, s3: ObjectStore, tmp_path: Path
) -> None:
    found = look(spec.urls()["images"], "data.images")
    with pytest.raises(ResourceError, match="needs 1e"):
        fetch({"images": found._replace(sizes={"": 10**18})}, tmp_path)
    assert s3.reads("shoes/my pictures.tar") == 0
    s3.put("shoes/my pictures.tar", b"shorter")
    with pytest.raises(DataError, match=r"data\.images at s3://.* it has 7 bytes instead"):
        fetch({"images": found}, tmp_path)
    assert [p.suffix for p in (tmp_path / "remote").iterdir()] == [".lock"]


def test_an_object_that_was_replaced_is_downloaded_anew(
    spec: DataSpec, s3: ObjectStore, files: Any, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    first = fetched(spec, store)
    kinds = labels_of(spec.model_copy(update=first)).labels["kind"]
    files.frame["kind"] = files.frame["kind"].map({"a": "ba", "b": "a"})
    files.spec()
    s3.put("shoes/labels.csv", files.csv)
    second = fetched(spec, store)
    assert first["images"] == second["images"]
    assert (labels_of(spec.model_copy(update=second)).labels["kind"] != kinds).all()


def test_a_store_that_fails_for_a_moment_is_asked_again(
    s3: ObjectStore, spec: DataSpec, tmp_path: Path
) -> None:
    failed: dict[str, int] = {}

    def fault(method: str, path: str) -> int | None:
        failed[path] = failed.get(path, 0) + 1
        return 503 if failed[path] in (2, 3) else None

    s3.fault = fault
    places = fetched(spec, tmp_path / "store")
    assert Path(places["csv"]).read_bytes() == s3.content("shoes/labels.csv")
    assert max(failed.values()) > 3
