"""The folder of local Rays, which only its user enters, and the empty working directory."""

import os
from pathlib import Path

import pytest

from mtcon_ray.cluster.ray_folders import away, private_folder, sessions_folder, working_folder
from mtcon_ray.errors import MtconError


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def test_nobody_else_can_enter_the_sessions(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base / f"mtcon-ray-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert sessions_folder().parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setenv("TMPDIR", str(base))
    assert private_folder() == folder


@pytest.mark.parametrize("kind", ["link", "file", "another user"])
def test_a_folder_that_is_not_ours_is_refused(
    kind: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = base / f"mtcon-ray-{os.getuid()}"
    if kind == "link":
        folder.symlink_to(base)
    elif kind == "file":
        folder.touch()
    else:
        user = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: user)
        (base / f"mtcon-ray-{user}").mkdir()
    with pytest.raises(
        MtconError, match=r"a link or a folder of another user for .*set RAY_TMPDIR"
    ):
        private_folder()


def test_a_folder_that_cannot_be_made_is_told_with_its_variable(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (base / "file").touch()
    monkeypatch.setenv("RAY_TMPDIR", str(base / "file"))
    with pytest.raises(MtconError, match=r"got Not a directory for .*set RAY_TMPDIR"):
        private_folder()


def test_ray_is_used_from_an_empty_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(base)
    with away():
        here = Path.cwd()
        assert list(here.iterdir()) == []
        assert here.stat().st_mode & 0o777 == 0o700
        with away():
            assert working_folder() == base
            assert Path.cwd() == here
        assert working_folder() == base
    assert (Path.cwd(), working_folder()) == (base, base)
