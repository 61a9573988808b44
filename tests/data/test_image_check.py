"""Tests of the check of images before training: missing and corrupt ones, and likely causes."""

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtcon_ray.data.dataset import check_dataset, open_dataset
from mtcon_ray.data.sources import DataSpec
from mtcon_ray.data.sources.files import SAMPLE, FilesSource, evenly
from mtcon_ray.errors import DataError, ResourceError
from tests.data.archives import pack
from tests.data.labels import labels_of


def warnings_of(spec: DataSpec, tmp_path: Path) -> tuple[str, ...]:
    """Returns the warnings of the check of a spec's data."""
    return check_dataset(spec, 16, tmp_path / "store").table.warnings


def refusal(spec: DataSpec, tmp_path: Path) -> str:
    with pytest.raises(DataError) as caught:
        check_dataset(spec, 16, tmp_path / "store")
    assert not (tmp_path / "store").exists()
    return str(caught.value)


def many(files: Any, count: int) -> None:
    """Makes the table one of `count` readable images."""
    files.frame = files.frame.iloc[np.arange(count) % 20].reset_index(drop=True)
    files.frame["image"] = [f"{row}.jpg" for row in range(count)]
    content = (files.images / "3.jpg").read_bytes()
    for row in range(20, count):
        (files.images / f"{row}.jpg").write_bytes(content)


@pytest.mark.parametrize("suffix", ["", ".tar", ".tar.gz"])
def test_every_missing_image_counts(files: Any, tmp_path: Path, suffix: str) -> None:
    """All files are looked for: 3 of 200 are reported, whether or not they are in the sample."""
    many(files, 200)
    for row in (1, 101, 153):
        (files.images / f"{row}.jpg").unlink()
    images = files.images
    if suffix:
        images = tmp_path / f"images{suffix}"
        pack(files.images, images)
    spec = files.spec(images=str(images))
    assert refusal(spec, tmp_path) == (
        "at most 1.00% of the images may be missing or corrupt (data.max_bad_images), got 3 of "
        "200:\n  row 3, 1.jpg: no such file\n  row 103, 101.jpg: no such file\n"
        "  row 155, 153.jpg: no such file"
    )
    (warning,) = warnings_of(spec.model_copy(update={"max_bad_images": 0.02}), tmp_path)
    assert warning == "3 images cannot be read and are left out, first row 3, 1.jpg: no such file"


def test_a_sample_is_decoded(files: Any, tmp_path: Path) -> None:
    """All of 20 images are decoded, and a sample of 200."""
    assert warnings_of(files.spec(), tmp_path) == ()
    (files.images / "0.jpg").write_bytes(b"<html>")
    assert "got 1 of 20:\n  row 2, 0.jpg: not an image" in refusal(files.spec(), tmp_path)
    (tolerated,) = warnings_of(files.spec(max_bad_images=0.05), tmp_path)
    assert tolerated.startswith("1 images cannot be read and are left out, first row 2, 0.jpg: not")
    many(files, 200)
    (warning,) = warnings_of(files.spec(), tmp_path)  # does not show that more than 1 % are corrupt
    told = "first row 2, 0.jpg: not an image of a format that is read; if more than 1.00%"
    assert warning.startswith(f"1 of a sample of 50 images cannot be decoded, {told}")
    for row in range(0, 200, 4):  # a quarter
        (files.images / f"{row}.jpg").write_bytes(b"")
    assert " of a sample of 50 images cannot be" in warnings_of(files.spec(), tmp_path)[0]
    for row in range(1, 200, 2):
        (files.images / f"{row}.jpg").write_bytes(b"")
    assert f" of a sample of {SAMPLE}:\n" in refusal(files.spec(), tmp_path)


def test_too_many_corrupt_images_are_decoded_once(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No corrupt image is in the sample. The message shows twenty; a higher limit decodes none."""
    many(files, 300)
    for row in np.setdiff1d(np.arange(300), evenly(300, SAMPLE))[:30]:
        (files.images / f"{row}.jpg").write_bytes(b"")

    def refused() -> str:
        with pytest.raises(DataError, match="got 30 of 300:") as caught:
            open_dataset(files.spec(), view_size=16, store=tmp_path / "store")
        return str(caught.value)

    message = refused()
    assert message.count("empty file") == 20
    assert message.endswith("\n  and 10 more")
    monkeypatch.setattr(FilesSource, "decode", None)
    assert refused() == message
    found = open_dataset(files.spec(max_bad_images=0.1), view_size=16, store=tmp_path / "store")
    assert len(found.images) == 300


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EMFILE])
def test_an_error_of_the_disk_is_no_corrupt_image(
    files: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It stops the reading. The store remembers no image as corrupt for it."""
    spec, real = files.spec(), os.open

    def fail(path: Any, *args: Any, **options: Any) -> int:
        if str(path).endswith("7.jpg"):
            raise OSError(number, os.strerror(number))
        return real(path, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", fail)
        rule = rf"cannot read the image .*7\.jpg: {os.strerror(number)}; repeat the command"
        with pytest.raises(ResourceError, match=rule):
            open_dataset(spec, view_size=16, store=tmp_path / "store")
    assert open_dataset(spec, view_size=16, store=tmp_path / "store").table.warnings == ()


def test_a_link_to_an_image_is_an_image(files: Any, tmp_path: Path) -> None:
    (files.images / "1.jpg").unlink()
    (files.images / "1.jpg").symlink_to(files.images / "2.jpg")
    assert warnings_of(files.spec(), tmp_path) == ()
    (files.images / "2.jpg").unlink()
    assert "row 3, 1.jpg: no such file" in refusal(files.spec(), tmp_path)


@pytest.mark.parametrize("name", ["pictures\\{}.jpg", "pictures/{}.jpg", "{}.JPG", "{}"])
def test_a_file_of_the_same_name_is_named(files: Any, tmp_path: Path, name: str) -> None:
    files.frame["image"] = [name.format(row) for row in range(20)]
    message = refusal(files.spec(), tmp_path)
    told = "'image' must hold paths as they are below data.images, with / between folders"
    assert message.splitlines()[-1] == f"{name.format(0)!r} exists as '0.jpg': column {told}"
    assert "got 20 of 20:" in message


def test_a_file_in_a_deeper_folder_is_named(files: Any, tmp_path: Path) -> None:
    """If several files have the name, it is the one whose folders are most similar."""
    files.frame["image"] = "Photos/" + files.frame["image"]
    pack(files.images, tmp_path / "images.tar", "a/photos")
    for folder in ("a", "b"):
        (tmp_path / "above" / folder).mkdir(parents=True)
    (tmp_path / "above" / "b" / "0.jpg").touch()
    files.images.rename(tmp_path / "above" / "a" / "photos")
    for images in ("images.tar", "above"):
        message = refusal(files.spec(images=str(tmp_path / images)), tmp_path)
        assert message.splitlines()[-1].startswith("'Photos/0.jpg' exists as 'a/photos/0.jpg': ")


def test_another_column_of_paths_or_another_archive_is_named(files: Any, tmp_path: Path) -> None:
    """The hint is also given if the wrong column has as many values as rows."""
    (tmp_path / "images.zip").write_bytes(b"PK")
    message = refusal(files.spec(images=str(tmp_path / "images.zip")), tmp_path)
    assert message.endswith("images.zip; unpack another archive and name its folder")
    files.frame["file"] = files.frame["image"]
    files.frame["image"] = [f"title {row}" for row in range(20)]
    assert "did you mean image_column: 'file'?" in refusal(files.spec(), tmp_path)


@pytest.mark.parametrize("name", ["{0}/../secret.jpg", "{0}-other/x.jpg", "{0}/away.jpg"])
def test_absolute_paths_may_lead_below_and_not_out(files: Any, tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.jpg").touch()
    (files.images / "away.jpg").symlink_to(tmp_path / "secret.jpg")
    files.frame.loc[0, "image"] = f"{files.images}/0.jpg"
    assert labels_of(files.spec()).names[:2] == ("0.jpg", "1.jpg")
    files.frame.loc[4, "image"] = name.format(files.images)
    with pytest.raises(DataError, match=r"must name files inside .*, got '/.* in row 6"):
        labels_of(files.spec())


@pytest.mark.parametrize("name", ["/home/me/pictures/{}", "../{}"])
def test_a_path_of_another_machine_gets_a_hint(files: Any, name: str) -> None:
    files.frame["image"] = [name.format(row) for row in files.frame["image"]]
    with pytest.raises(DataError, match=r"in row 2\n'.*0\.jpg' exists as '0\.jpg': column"):
        labels_of(files.spec())


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_that_leads_out_is_named(files: Any, tmp_path: Path, linked: str) -> None:
    """Caches of DVC, git-annex and datalad look so."""
    cache = tmp_path / "cache"
    files.images.rename(cache)
    files.images.mkdir()
    if linked == "folder":
        (files.images / "sub").symlink_to(cache)
        files.frame["image"] = "sub/" + files.frame["image"]
    else:
        for image in cache.iterdir():
            (files.images / image.name).symlink_to(image)
    with pytest.raises(DataError, match=r"0\.jpg' in row 2; a link leads outside: copy the files"):
        labels_of(files.spec())
