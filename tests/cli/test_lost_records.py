"""Records of a sweep that are damaged or lost: told in one line, beside all that is left."""

import json
import re
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mtcon_ray.cli.main import program
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Ended, Reopened
from tests.recorded import plan_with
from tests.sweep.written_sweep import write_sweep

NAME = "shoes-1"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of a sweep whose trials have finished, been pruned and interrupted."""
    folder = tmp_path_factory.mktemp("root") / "sweeps" / NAME
    write_sweep(folder)
    (folder / "plan.json").write_text(plan_with(num_trials=3).model_dump_json())
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "sweeps" / NAME))


def ask(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(program, [*words, "--root", str(folder.parents[1])])


def states(folder: Path) -> dict[str, str]:
    return {o["name"]: o["state"] for o in json.loads(ask(folder, "list", "--json").stdout)}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("spec.yaml", b"search: 3"),
        ("plan.json", b""),
        ("plan.json", b"\xff"),
        ("plan.json", b"[" * 100_000),
        ("plan.json", None),
        ("spool/parent.jsonl", b"[" * 100_000 + b"\n"),
        ("spool/parent.jsonl", None),
        ("spool/trial-0000.jsonl", b'{"kind": "start", "params": [], "tags": {}}\n'),
        ("spool/trial-0000.jsonl", b'{"kind": "start", "params": {}, "tags": {}}\n'),
    ],
)
def test_a_damaged_record_hides_no_other_sweep(
    folder: Path, name: str, content: bytes | None
) -> None:
    """None stands for a folder in place of the file."""
    broken = shutil.copytree(folder, folder.with_name("broken-1"))
    (broken / name).unlink()
    if content is None:
        (broken / name).mkdir()
    else:
        (broken / name).write_bytes(content)
    told = states(folder)
    assert told["broken-1"].startswith("unreadable")
    assert told[NAME] == "stopped"
    refused = ask(folder, "status", "broken-1")
    assert refused.exit_code in (1, 2)
    assert re.match("error: ", refused.stderr)
    assert "unexpected" not in refused.stderr


def test_a_sweep_without_the_beginning_of_its_log_is_listed(folder: Path) -> None:
    parent = folder / "spool" / "parent.jsonl"
    EventLog(parent).append(Reopened())
    parent.write_text(parent.read_text().splitlines()[1].replace("reopen", "artifact"))
    assert states(folder)[NAME] == "stopped"


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        (None, "its event log is missing: its metrics are lost"),
        ([], "its event log is missing: its metrics are lost"),
        ([0, 1], "its event log has no end: the metrics of its last epochs are lost"),
        ([0, 2, 3], "its events are not numbered without gaps: lines are missing"),
    ],
)
def test_what_an_event_log_has_lost_is_told(
    folder: Path, kept: list[int] | None, told: str
) -> None:
    """It is told beside the output. `kept` are the lines that are left; None: no file."""
    EventLog(folder / "spool" / "trial-0002.jsonl").append(Ended(status="KILLED", tags={}))
    EventLog(folder / "spool" / "parent.jsonl").append(Ended(status="FINISHED", tags={}))
    assert ask(folder, "status", NAME).stderr == ""
    log = folder / "spool" / "trial-0001.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.unlink()
    if kept is not None:
        log.write_text("".join(lines[number] for number in kept))
    for words in (["status"], ["status", "--json"], ["best", "--json"]):
        shown = ask(folder, words[0], NAME, *words[1:])
        assert shown.exit_code == 0
        assert f"warning: trial-0001: {told}\n" in shown.stderr
        assert words[-1] != "--json" or json.loads(shown.stdout)


def test_a_report_and_a_transfer_tell_what_is_lost_too(folder: Path) -> None:
    """The last trial is missed by its checkpoints. Nothing is sent without the sweep's own log."""
    told = "trial-0002: its event log is missing: its metrics are lost"
    (folder / "spool" / "trial-0002.jsonl").unlink()
    assert ask(folder, "report", NAME).stderr == f"warning: {told}\n"
    assert told in (folder / "report" / "index.html").read_text()
    parent = folder / "spool" / "parent.jsonl"
    for lost in ("", '{"kind": "reopen", "seq": 1, "time_ms": 1}\n'):
        parent.write_text(lost)
        result = ask(folder, "track-sync", NAME)
        assert result.exit_code == 2
        assert f"warning: {told}\nerror: {parent} is damaged: it begins with" in result.stderr
