"""Tests of names and folders under the root."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mtcon_ray.base.paths import (
    SPEC_FILE,
    choose_root,
    comparison_folder,
    find_folder,
    last_name,
    list_folders,
    new_name,
    prepare_root,
    sweep_folder,
    sweeps_folder,
)
from mtcon_ray.errors import SweepError, UserError


def make(folder: Path) -> Path:
    """Makes a folder that counts as a sweep, and returns it."""
    folder.mkdir(parents=True)
    (folder / SPEC_FILE).touch()
    return folder


def test_root_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert choose_root("here") == tmp_path / "here"
    assert choose_root("~/there") == tmp_path / "home" / "there"
    assert choose_root(None) == tmp_path / "home" / "mtcon-ray"


def test_the_home_of_an_unknown_user_is_refused() -> None:
    told = "the home folder at the beginning of '~no-such-user/x' is unknown on this machine"
    with pytest.raises(UserError, match=told):
        choose_root("~no-such-user/x")


@pytest.mark.parametrize("url", ["s3://bucket/x", "s3:/bucket/x", "file:///tmp/x", "hf://me:key@x"])
def test_a_url_is_no_root(url: str) -> None:
    with pytest.raises(UserError, match=r"must be a folder, got a URL .* storage\.mirror") as error:
        choose_root(url)
    assert "key" not in str(error.value)


def test_the_permissions_of_an_existing_root_are_named_and_stay() -> None:
    told: list[str] = []
    with TemporaryDirectory() as above:
        root = Path(above, "root")
        prepare_root(root, told.append)
        assert root.stat().st_mode & 0o777 == 0o700
        root.chmod(0o750)
        prepare_root(root, told.append)
        assert told == [], "nobody else can search the folder above"
        Path(above).chmod(0o711)
        prepare_root(root, told.append)
        assert root.stat().st_mode & 0o777 == 0o750
        assert len(told) == 1
        assert f"mode 750, so other users may read what is in it; `chmod 700 {root}`" in told[0]
        root.chmod(0o700)
        prepare_root(root, told.append)
        assert len(told) == 1


@pytest.mark.parametrize("place", [sweep_folder, comparison_folder, find_folder])
@pytest.mark.parametrize("name", ["store", "sweeps", "mlartifacts"])
def test_a_name_is_no_folder_of_the_root(
    tmp_path: Path, place: Callable[[Path, str], Path], name: str
) -> None:
    with pytest.raises(SweepError, match=rf"must not be one of .* got '{name}'"):
        place(tmp_path, name)


def test_new_names_count_on_from_the_highest(tmp_path: Path) -> None:
    assert new_name(tmp_path, "shoes") == "shoes-1"
    for name in ("shoes-2", "shoes-10", "shoes-x", "other-30", "shoes-007"):
        (tmp_path / "sweeps" / name).mkdir(parents=True)
    assert new_name(tmp_path, "shoes") == "shoes-11"
    assert last_name(tmp_path, "shoes") == "shoes-10"


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "A", "-x", "x" * 101, "a\n"])
def test_names_that_are_no_folder_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(SweepError, match="a name must be"):
        sweep_folder(tmp_path, name)


def test_find_suggests_a_similar_name(tmp_path: Path) -> None:
    sweep = make(sweep_folder(tmp_path, "shoes-1"))
    assert find_folder(tmp_path, "shoes-1") == sweep
    with pytest.raises(SweepError, match="did you mean 'shoes-1'"):
        find_folder(tmp_path, "shoe-1")
    with pytest.raises(SweepError, match="a name must be"):
        find_folder(tmp_path, "../shoes-1")


def test_only_whole_folders_are_listed(tmp_path: Path) -> None:
    make(sweep_folder(tmp_path, "b-1"))
    make(sweeps_folder(tmp_path) / ".removing-c-1")
    sweep_folder(tmp_path, "a-1").mkdir()
    assert [folder.name for folder in list_folders(sweeps_folder(tmp_path))] == ["b-1"]
