"""Tests of names and folders under the root."""

import os
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from mtcon_ray.base import paths
from mtcon_ray.base.root_files import TOP
from mtcon_ray.errors import ResourceError, SweepError, UserError

BAD_NAMES = ("", "..", ".hidden", "a/b", "A", "-x", "x" * 101, "a\n", "../a")


def make(folder: Path) -> Path:
    """Makes a folder that counts as a sweep, and returns it."""
    folder.mkdir(parents=True)
    (folder / paths.SPEC_FILE).touch()
    return folder


def test_root_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert paths.choose_root("here") == tmp_path / "here"
    assert paths.choose_root("~/there") == tmp_path / "home" / "there"
    assert paths.choose_root(None) == tmp_path / "home" / "mtcon-ray"


@pytest.mark.parametrize(
    "url",
    ["az://bucket/x", "s3:/bucket/x", "file:///tmp/x", "hf://me:canary@x", "s3://me:canary@b/x"],
)
def test_other_urls_are_no_root(url: str) -> None:
    with pytest.raises(UserError, match=r"a root that is no folder must") as error:
        paths.choose_root(url)
    assert "canary" not in str(error.value)


@pytest.mark.parametrize("url", ["s3://bucket", "gs://b-1/a/b c+d", "s3://bucket/sweeps/%2B"])
def test_a_root_in_an_object_store_has_a_folder_on_this_machine(url: str, tmp_path: Path) -> None:
    root = paths.choose_root(f"{url}/", str(tmp_path))
    assert root.parents[1] == tmp_path
    assert paths.stored_url(root) == url
    assert paths.stored_url(paths.sweep_folder(root, "a")) == f"{url}/sweeps/a"
    assert paths.stored_url(root / "seen" / "sweeps" / "a") == f"{url}/sweeps/a"
    assert paths.choose_root(url, str(tmp_path)) == root
    for other in (tmp_path, root.with_name("s3+a%2fb"), root.parents[1] / root.name):
        assert paths.stored_url(other) is None


def test_files_of_an_object_store_lie_where_only_their_owner_writes(tmp_path: Path) -> None:
    root = paths.choose_root("s3://bucket/x", str(tmp_path / "local"))
    paths.prepare_root(root)
    assert {p.stat().st_mode & 0o777 for p in (tmp_path / "local", root)} == {0o700}
    root.chmod(0o777)
    with pytest.raises(ResourceError, match="another user owns it or may write to it"):
        paths.prepare_root(root)


@pytest.mark.parametrize("place", [paths.sweep_folder, paths.comparison_folder, paths.find_folder])
@pytest.mark.parametrize("name", [*BAD_NAMES, *TOP])
def test_other_names_and_root_folders_are_refused(tmp_path: Path, place: Any, name: str) -> None:
    with pytest.raises(SweepError, match=r"a name must be .* none of sweeps"):
        place(tmp_path, name)


def test_new_names_count_on_from_the_highest(tmp_path: Path) -> None:
    assert paths.new_name(tmp_path, "shoes") == "shoes-1"
    for name in ("shoes-2", "shoes-10", "shoes-x", "other-30", "shoes-007"):
        (tmp_path / "sweeps" / name).mkdir(parents=True)
    assert paths.new_name(tmp_path, "shoes") == "shoes-11"
    assert paths.last_name(tmp_path, "shoes") == "shoes-10"


def test_only_whole_folders_are_listed(tmp_path: Path) -> None:
    make(paths.sweep_folder(tmp_path, "b-1"))
    make(tmp_path / "sweeps" / ".removing-c-1")
    paths.sweep_folder(tmp_path, "a-1").mkdir()
    assert [folder.name for folder in paths.list_folders(tmp_path)] == ["b-1"]


def test_a_folder_of_another_user_is_listed(tmp_path: Path) -> None:
    for name in ("b-1", "a-1"):
        make(paths.sweep_folder(tmp_path, name))
    os.utime(tmp_path / "sweeps" / "b-1" / paths.SPEC_FILE, (0, 0))
    stat = Path.stat

    def refused(path: Path, **options: Any) -> os.stat_result:
        if path == tmp_path / "sweeps" / "a-1" / paths.SPEC_FILE:
            raise PermissionError
        return stat(path, **options)

    with patch.object(Path, "stat", refused):
        assert [folder.name for folder in paths.list_folders(tmp_path)] == ["b-1", "a-1"]
