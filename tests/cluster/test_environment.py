"""The folder of local Rays, which only its user enters, their token, and the empty directory."""

import os
from pathlib import Path

import pytest

from mtcon_ray.cluster import environment
from mtcon_ray.errors import MtconError


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return tmp_path


def test_nobody_else_can_enter_the_sessions(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base / f"mtcon-ray-{os.getuid()}"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    assert environment.sessions_folder().parent == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.delenv("RAY_TMPDIR")
    monkeypatch.setenv("TMPDIR", str(base))
    assert environment.private_folder() == folder
    monkeypatch.delenv("TMPDIR")
    assert environment.private_folder().parent == Path("/tmp")


def test_a_local_ray_has_a_token_of_its_own(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(base))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    path = environment.private_folder() / "token"
    with environment.restored_environment():
        environment.name_token()
        assert os.environ["RAY_AUTH_TOKEN_PATH"] == str(path)
    token = path.read_text()
    assert len(token) == 64
    assert path.stat().st_mode & 0o777 == 0o600
    with environment.restored_environment():
        environment.name_token()
    assert path.read_text() == token
    assert not (base / ".ray").exists()
    (base / ".ray").mkdir()
    (base / ".ray" / "auth_token").touch()
    environment.name_token()
    (base / ".ray" / "auth_token").unlink()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    environment.name_token()
    assert "RAY_AUTH_TOKEN_PATH" not in os.environ


@pytest.mark.parametrize("kind", ["link", "file", "another user"])
def test_others_folders_are_refused(kind: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base / f"mtcon-ray-{os.getuid()}"
    if kind == "link":
        folder.symlink_to(base)
    elif kind == "file":
        folder.touch()
    else:
        user = os.getuid() + 1
        monkeypatch.setattr(os, "getuid", lambda: user)
        (base / f"mtcon-ray-{user}").mkdir()
    with pytest.raises(MtconError, match=r"a link or a folder of another user: .*set RAY_TMPDIR"):
        environment.private_folder()


def test_ray_is_used_from_an_empty_folder(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray lets processes on all nodes look for modules in a folder of this path."""
    monkeypatch.chdir(base)
    monkeypatch.setenv("HOME", str(base / "home"))
    with environment.away():
        here = Path.cwd()
        assert here == base / "home/.cache/mtcon-ray/empty"
        assert list(here.iterdir()) == []
        assert here.stat().st_mode & 0o777 == 0o700
        with environment.away():
            assert environment.working_folder() == base
            assert Path.cwd() == here
        assert environment.working_folder() == base
    assert (Path.cwd(), environment.working_folder()) == (base, base)
    (base / "file").touch()
    monkeypatch.setenv("HOME", str(base / "file"))
    with environment.away():
        assert Path.cwd() == environment.private_folder() / "empty"


def test_relative_paths_hold_in_other_folders(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths of variables, away from the user's folder."""
    monkeypatch.chdir(base)
    given = {
        "RAY_TMPDIR": "~sessions",  # no home folder: Ray takes it as it is
        "RAY_AUTH_TOKEN_PATH": "secrets/token",
        "MTCON_RAY_CLUSTER_FILE": "~/cluster.yaml",
        "SSL_CERT_FILE": "/etc/cert",
    }
    for name, path in given.items():
        monkeypatch.setenv(name, path)
    sessions = environment.sessions_folder()
    assert sessions.parents[1] == base / "~sessions"
    with environment.away(), environment.away():
        assert environment.sessions_folder() == sessions
        absolute = {"RAY_AUTH_TOKEN_PATH": str(base / "secrets" / "token")}
        assert os.environ.items() >= {**given, **absolute}.items()
        os.environ["SET_BY_RAY"] = "1"
    assert os.environ.items() >= given.items()
    assert "SET_BY_RAY" not in os.environ


def test_a_removed_folder_ends_no_sweep(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = base / "mine"
    mine.mkdir()
    monkeypatch.chdir(mine)
    with environment.away():
        mine.rmdir()
    mine.mkdir()
    os.chdir(mine)
    mine.rmdir()
    told = "the working directory was removed or moved"
    with pytest.raises(MtconError, match=told), environment.away():
        pytest.fail("it was entered")
