"""`clean --yes` of links, and after a removal that was interrupted."""

from pathlib import Path

from click.testing import Result

from mtcon_ray.base.paths import SPEC_FILE, sweep_folder
from tests.cli.conftest import run


def make(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / SPEC_FILE).touch()
    return folder


def clean(root: Path, *options: str) -> Result:
    return run("clean", "shoes-1", "--root", root, *options)


def test_a_link_is_refused_before_anything_is_renamed(tmp_path: Path) -> None:
    target, link = make(tmp_path / "disk" / "shoes"), sweep_folder(tmp_path, "shoes-1")
    link.parent.mkdir()
    link.symlink_to(target)
    assert clean(tmp_path).exit_code == 0
    refused = clean(tmp_path, "--yes")
    assert refused.exit_code == 2
    assert f"{link} is not removed, because it is a link to {target}" in refused.stderr
    assert list(link.parent.iterdir()) == [link]
    assert (target / SPEC_FILE).exists()


def test_an_interrupted_removal_is_finished(tmp_path: Path) -> None:
    folder = make(sweep_folder(tmp_path, "shoes-1"))
    make(folder.with_name(".removing-shoes-1"))
    done = clean(tmp_path, "--yes")
    assert done.exit_code == 0, done.output
    assert list(folder.parent.iterdir()) == []


def test_the_size_of_a_folder_does_not_count_what_its_links_lead_to(tmp_path: Path) -> None:
    folder = make(tmp_path / "sweeps" / "shoes-1")
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "large").write_bytes(bytes(100_000))
    (folder / "link").symlink_to(tmp_path / "disk")
    assert "100.0 kB" not in clean(tmp_path).output
