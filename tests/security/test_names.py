"""Names from files of unknown origin are printed on a terminal as plain text."""

import io
import os
from pathlib import Path

import pytest

from mtcon_ray.base.paths import event_file
from mtcon_ray.display.console import Console, Terminal
from mtcon_ray.display.presentation import configuration_text, printable
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Artifact, Ended, Started
from tests.cli.conftest import run
from tests.data.sources.downloads import save_image
from tests.recorded import plan_with

EVIL = "\x1b]52;c;cm0gLXJm\x07\x9b2J\x1b[2J\u202e"


@pytest.mark.parametrize("character", ["\x1b", "\x07", "\r", "\x9b", "\x7f", "\u202e", "\u2066"])
def test_characters_that_command_a_terminal_are_written_out(character: str) -> None:
    assert character not in printable(f"a{character}b")
    assert printable("Größe\t→ 日本\n") == "Größe\t→ 日本\n"
    assert printable("\udcff").encode() == b"\\udcff"


def test_a_key_of_a_spec_commands_no_terminal(tmp_path: Path) -> None:
    key = EVIL.encode("unicode_escape").decode()
    (tmp_path / "s.yaml").write_text(f'name: a\ndata: {{kind: synthetic}}\n"{key}": 1')
    result = run("validate", tmp_path / "s.yaml")
    assert result.exit_code == 2
    assert "\x1b" not in result.output
    assert r"\x1b[2J" in result.output


def test_a_column_commands_no_terminal(tmp_path: Path) -> None:
    rows = "\n".join(f"{i},{'ab'[i % 2]}" for i in range(20))
    (tmp_path / "l.csv").write_text(f"image,shape{EVIL.replace(';', '')}\n{rows}\n")
    (tmp_path / "images").mkdir()
    result = run("init", tmp_path / "l.csv", tmp_path / "images", "-o", tmp_path / "s.yaml")
    assert not set(EVIL) & set(result.output) & set("\x1b\x07\x9b\u202e")
    assert r"\x1b" in result.output


@pytest.mark.parametrize("tty", [True, False])
def test_values_and_reasons_command_no_terminal(tty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: tty)
    monkeypatch.setenv("TERM", "xterm")
    with Console(Terminal(stream)) as console:
        console.on_start("a-1", Path("/a"), plan_with())
        console.on_suggest("trial-0000", {"method.task": EVIL})
        console.on_end("trial-0000", "FAILED", None, f"row 2, {EVIL}.png: not an image")
        console.on_note(EVIL)
    assert not {"\x07", "\x9b", "\u202e"} & set(stream.getvalue())
    assert "\x1b]" not in stream.getvalue()
    assert "\x1b" not in configuration_text({"method.task": EVIL})


FORGED = "[ 9:99] trial-0001 finished"


def test_a_line_end_in_a_name_begins_no_line(tmp_path: Path) -> None:
    """Names of images stand in errors, warnings, findings and notes without quotes."""
    images = tmp_path / "images"
    for shape in ("disc", "ring", ".hidden\n" + FORGED):
        for i in range(20):
            save_image(images / shape / f"{i}.png", 10 * i)
    for name in (f"a\n{FORGED}.png", f"b\u2028\n{FORGED}.txt"):
        (images / "disc" / name).touch()
    spec = tmp_path / "s.yaml"
    printed = [run("init", images, "-o", spec).output]
    (images / "disc" / f"a\n{FORGED}.png").unlink()
    for words in (["init", images, "-o", spec], ["validate", spec], ["plan", spec]):
        printed.append(run(*words).output)
    stream = io.StringIO()
    with Console(Terminal(stream)) as console:
        console.on_note(f"warning: first a\n{FORGED}")
        console.on_abort(f"got a\n{FORGED}")
    printed.append(stream.getvalue())
    assert all(FORGED in text for text in printed)
    lines = [line for text in printed for line in text.splitlines()]
    assert not [line for line in lines if line.startswith("[ 9:99]")]


@pytest.mark.mlflow
@pytest.mark.timeout(120)  # opening the pipe would block for ever
def test_a_record_sends_no_file_from_elsewhere(tmp_path: Path) -> None:
    """The event log of a foreign sweep names files of the user."""
    from mtcon_ray.tracking.sender import Sender

    secret = tmp_path / "id_rsa"
    secret.write_text("canary")
    folder = tmp_path / "sweeps" / "theirs"
    spool = EventLog(event_file(folder))
    spool.append(Started(params={}, tags={}))
    (folder / "d").mkdir()
    (folder / "d" / "link").symlink_to(secret)
    (folder / "home").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe")
    outside = (secret, folder / ".." / ".." / "id_rsa", folder / "home" / "id_rsa")
    within = (folder / "d", folder / "d" / "link", folder, folder / "pipe")
    for path in (*outside, *within):
        spool.append(Artifact(path=str(path), to=""))
    spool.append(Ended(status="FINISHED", tags={}))
    before = set(tmp_path.rglob("*"))
    sender = Sender(folder, f"sqlite:///{tmp_path}/mlflow.db", "tests")
    sender.attempt()
    assert sender.pending() == 0, sender.last_error
    assert len(sender.refused) == len(outside) + len(within)
    written = {p.name for p in set(tmp_path.rglob("*")) - before if p.is_file()}
    database = {"mlflow.db", "mlflow.db.lock", "mlflow.db-shm", "mlflow.db-wal"}
    assert written - database == {"sent.json"}
    assert (tmp_path / "mlflow.db").stat().st_mode & 0o077 == 0
