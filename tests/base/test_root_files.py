"""Tests of files below the root: no link leads a write or a read elsewhere."""

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from mtcon_ray.base import root_files
from mtcon_ray.errors import SweepError
from tests.test_layers import PACKAGE


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns a sweep's folder below a root to which a link of the user leads."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "disk")
    folder = tmp_path / "root" / "sweeps" / "theirs"
    root_files.make_folder(folder)
    return folder


def test_the_root_of_a_path_is_above_the_last_folder_of_its_kind() -> None:
    lock, picture = "/home/sweeps/jan/store/x.lock", "/somewhere/out/a.png"
    for path, root in ((lock, "/home/sweeps/jan"), (picture, "/somewhere/out")):
        found, parts = root_files.split_at_root(Path(path))
        assert (str(found), found.joinpath(*parts)) == (root, Path(path))


@pytest.mark.parametrize("path", ["sweeps/a/../../x", "sweeps/a/report/../../../../x.html"])
def test_a_path_below_the_root_does_not_lead_back(tmp_path: Path, path: str) -> None:
    with pytest.raises(SweepError, match=r"must not contain '\.\.'"):
        root_files.write(tmp_path / path, "")


def opened(mode: str) -> Callable[[Path], object]:
    return lambda path: open(path, mode, opener=root_files.below).close()


WRITES: dict[str, Callable[[Path], object]] = {
    "w": opened("w"), "a+": opened("a+"), "r+": opened("r+"), "x": opened("x"),
    "touch": root_files.touch, "check": root_files.check_no_links,
    "folder": root_files.make_folder, "remove folder": root_files.remove_folder,
    "write": lambda path: root_files.write(path, "theirs"),
}  # fmt: skip
BESIDE: dict[str, Callable[[Path], object]] = {
    "remove": root_files.remove,
    "move": lambda path: root_files.move(path, path.with_name("other")),
    "move to": lambda path: root_files.move(path.parents[1] / "own", path),
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("dangling", [False, True])
def test_no_write_follows_a_link_to_a_file(folder: Path, name: str, dangling: bool) -> None:
    victim, link = folder.parents[1] / "victim", folder / "link"
    if not dangling:
        victim.write_text("mine")
    link.symlink_to(victim)
    with pytest.raises(SweepError, match=rf"{link} is a link to {victim}, and nothing is written"):
        WRITES[name](link)
    assert link.is_symlink()
    assert victim.exists() != dangling
    assert dangling or victim.read_text() == "mine"


@pytest.mark.parametrize("name", [*WRITES, *BESIDE])
def test_no_write_follows_links(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Not even a link that is made after the check."""
    (victims := folder.parents[1] / "victims").mkdir()
    (victims / "file").mkdir()
    (folder / "own").write_text("theirs")
    (link := folder / "link").symlink_to(victims)
    act = (WRITES | BESIDE)[name]
    with pytest.raises(SweepError, match=rf"{link} is a link to .* --root or storage\.root"):
        act(link / "file")
    if name != "check":
        monkeypatch.setattr(root_files, "check_no_links", lambda path, itself=True: None)
        with pytest.raises(OSError, match="Not a directory"):
            act(link / "file")
    assert [entry.name for entry in victims.iterdir()] == ["file"]
    assert (folder / "own").exists()


def test_a_link_itself_may_be_removed_or_replaced(folder: Path) -> None:
    victim = folder.parents[1] / "victim"
    victim.write_text("mine")
    for name in ("removed", "replaced", "moved"):
        (folder / name).symlink_to(victim)
    root_files.remove(folder / "removed")
    root_files.write(folder / "own", "theirs")
    root_files.move(folder / "own", folder / "replaced")
    root_files.move(folder / "moved", folder / "to")
    assert sorted(p.name for p in folder.iterdir()) == ["replaced", "to"]
    assert (folder / "replaced").read_text() == "theirs"
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("mode", ["w", "r", "r+"])
def test_pipes_are_refused_without_waiting_for_them(folder: Path, mode: str) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises((SweepError, OSError), match=r"instead of a plain file|No such device"):
        opened(mode)(folder / "pipe")


def test_reads_follow_links_in_a_folder_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = folder.parents[1] / "secret"
    secret.write_text("canary")
    (folder / "own").write_text("theirs")
    (folder / "within").symlink_to("own")
    (folder / "away").symlink_to(secret)
    (folder / "home").symlink_to(secret.parent)
    (folder / "loop").symlink_to("loop")
    assert root_files.read_small(folder / "within") == b"theirs"
    for name in ("away", "home/secret"):
        for read in (root_files.read_small, root_files.check_own):
            with pytest.raises(SweepError, match=r"leads out of its folder, to .*/secret"):
                read(folder / name)
    with pytest.raises((SweepError, OSError)):
        root_files.read_small(folder / "loop")
    (folder.parent / "moved").symlink_to(folder)
    assert root_files.read_small(folder.parent / "moved" / "own") == b"theirs", "a link of the user"
    monkeypatch.setattr(root_files, "check_own", lambda path: path)
    monkeypatch.setattr(root_files, "check_no_links", lambda path, itself=True: None)
    with pytest.raises(OSError, match="Not a directory"):
        root_files.read_small(folder / "home" / "secret")  # a link that is made after the check


def test_files_and_folders_are_their_owners_alone(folder: Path) -> None:
    before = os.umask(0)
    try:
        root_files.make_folder(folder / "a" / "b")
        root_files.write(folder / "a" / "file", "x")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((folder / path).stat().st_mode) for path in ("a", "a/b", "a/file")]
    assert modes == [0o700, 0o700, 0o600]


# Modules that write elsewhere than below the root, and why they need no `root_files.py`.
ELSEWHERE = {
    "base/root_files.py": "the functions themselves",
    "base/paths.py": "creates the root, above which links are the user's own",
    "cli/spec_template.py": "init writes to the path of --output, and only a new file",
    "cli/embed_commands.py": "the page of --html, at the path that the user names",
    "cli/example_files.py": "examples are copied to a folder that the user names",
    "display/console.py": "/dev/null",
    "cluster/environment.py": "the folder of Ray's sessions, which it checks itself",
    "cluster/ray_private.py": "the session folder of Ray",
    "export/write.py": "a new folder that the user names with --to",
}
WRITES_A_PATH = re.compile(
    r"\.(?:write_text|write_bytes|touch|mkdir|unlink|chmod|symlink_to|hardlink_to|rmtree|copytree"
    r"|copyfile|copyfileobj|save_file)\("
    r"|\bos\.(?:replace|rename|remove|unlink|mkdir|makedirs|rmdir|truncate|symlink|link|chmod)\("
    # Without `opener=below`.
    r"|\bopen\((?!.*below)(?:[^,()]|\([^()]*\))*, \"[rbt]*[wax+]"
    r"|\.(?:rename|replace)\([^,()=]*\)|\.open\(\"[rbt]*[wax+]|\bos\.open\((?!.*O_RDONLY)"
)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: p.stem)
def test_only_root_files_writes_below_the_root(path: Path) -> None:
    found = WRITES_A_PATH.findall(path.read_text(encoding="utf-8"))
    name = str(path.relative_to(PACKAGE))
    if name in ELSEWHERE:
        assert found, f"{name} needs no exception"
    else:
        assert not found, f"{name} writes without mtcon_ray/base/root_files.py: {found}"
