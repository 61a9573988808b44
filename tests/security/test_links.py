"""Attacks by the author of a sweep's folder that was received: links, pipes and names of paths."""

import json
import os
from pathlib import Path

import pytest
from click.testing import Result

from mtcon_ray.base.paths import SENT_FILE, event_file, sweep_folder
from mtcon_ray.errors import SweepError
from mtcon_ray.records.recorded import load_recorded, write_beginnings
from mtcon_ray.tracking.sender import Sender
from tests.cli.conftest import run
from tests.recorded import plan_with
from tests.sweep.written_sweep import write_sweep

SECRET = "canary hunter2"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Returns a folder of the user with files of the same names as those of a sweep."""
    home = tmp_path / "home"
    home.mkdir()
    for name in ("token", "picture.png", "model.pt", "last.pt"):
        (home / name).write_text(SECRET)
    return home


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Returns the folder of a sweep of three trials."""
    folder = sweep_folder(tmp_path / "root", "theirs-1")
    write_sweep(folder)
    return folder


def ask(folder: Path, command: str) -> Result:
    name, *options = command.split()
    return run(name, folder.name, *options, "--root", folder.parents[1])


def place(link: Path, target: Path) -> None:
    """Puts a link in place of what is at its path."""
    link.parent.mkdir(exist_ok=True)
    if link.exists():
        link.rename(link.with_name("replaced"))
    link.symlink_to(target)


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


AUDIT = "audit --no-mlflow"
REPAIR = f"{AUDIT} --repair"


LINKS = [
    ("lock", "token", AUDIT),
    ("events.jsonl", "token", REPAIR),
    ("report", "", "report"),
    pytest.param("report/.index.html.partial", "token", "report", marks=pytest.mark.slow),
    ("checkpoints/trial-0000", "", REPAIR),
    ("optuna.journal", "token", "export --to optuna"),
]


@pytest.mark.parametrize(("link", "target", "command"), LINKS)
def test_a_command_writes_and_shows_nothing_through_a_link(
    folder: Path, home: Path, link: str, target: str, command: str
) -> None:
    place(folder / link, home / target)
    before = content(home)
    result = ask(folder, command)
    assert content(home) == before
    assert SECRET not in result.output
    assert result.exit_code == (1 if "trial" in link and "audit" in command else 2), result.output
    assert f"{folder / link}" in result.output
    assert f"{home / target}" in result.output


@pytest.mark.parametrize("name", ["spec.yaml", "plan.json"])
def test_a_resume_writes_no_spec_through_a_link(folder: Path, home: Path, name: str) -> None:
    spec = load_recorded(folder / "spec.yaml")
    place(folder / f".{name}.partial", home / "token")
    with pytest.raises(SweepError, match=r"partial is a link to .*home/token"):
        write_beginnings(folder, spec, plan_with())
    assert content(home)["token"] == SECRET


@pytest.mark.parametrize("name", ["spec.yaml", "plan.json", "events.jsonl", "lock"])
@pytest.mark.parametrize("how", ["link", "pipe"])
def test_a_read_shows_no_file_from_elsewhere(folder: Path, home: Path, name: str, how: str) -> None:
    """Other sweeps stay visible."""
    write_sweep(folder.with_name("mine-1"))
    (folder / name).unlink(missing_ok=True)
    if how == "link":
        (folder / name).symlink_to(home / "token")
    else:
        os.mkfifo(folder / name)
    for command in ("status", "best --json"):
        result = ask(folder, command)
        assert SECRET not in result.output
        assert result.exit_code == 2 or command.startswith("best"), result.output
    listed = run("list", "--json", "--root", folder.parents[1])
    states = {each["name"]: each["state"] for each in json.loads(listed.stdout)}
    assert states["mine-1"] == "stopped"
    assert SECRET not in listed.output
    assert str(folder / name) in states.get("theirs-1", str(folder / name))


def test_a_log_names_no_path(folder: Path, home: Path) -> None:
    log = event_file(folder)
    log.write_text(log.read_text().replace('"trial": "trial-0000"', '"trial": "../../../out"'))
    before = content(home)
    result = ask(folder, REPAIR)
    assert result.exit_code == 2
    assert "is damaged: its line at byte" in result.stderr
    assert content(home) == before
    assert not list(folder.parents[2].rglob("out*"))


@pytest.mark.parametrize("damage", [{"offset": [7]}, {"offset": 10**30}, {"offset": -1}, None])
def test_a_damaged_position_means_that_nothing_was_sent(folder: Path, damage: object) -> None:
    def pending() -> int:
        return Sender(folder, "sqlite:////nowhere/mlflow.db", "tests").pending()

    sent, total = folder / SENT_FILE, pending()
    sender = Sender(folder, "sqlite:////nowhere/mlflow.db", "tests")
    sender._read_to = event_file(folder).read_bytes().index(b"\n") + 1
    sender._save()
    saved = sent.read_text()
    assert pending() == total - 1
    sent.write_text(json.dumps({**json.loads(saved), **damage} if damage else damage))  # type: ignore[dict-item]
    assert pending() == total
    with sent.open("wb") as file:
        file.truncate(10**12)
    assert pending() == total
