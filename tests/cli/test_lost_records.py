"""Damaged or lost records of a sweep: a line names the record, and all other records are shown."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from click.testing import Result

from mtcon_ray.base.paths import event_file
from mtcon_ray.records.events import Ended
from mtcon_ray.records.lost import MOST, lost_in
from tests.cli.conftest import run
from tests.run_log import RunLog

NAME = "shoes-1"


def ask(folder: Path, *words: str) -> Result:
    return run(*words, "--root", folder.parents[1])


DAMAGE = [
    ("spec.yaml", b"search: 3"), ("plan.json", b""), ("plan.json", b"\xff"),
    ("plan.json", b"[" * 100_000), ("plan.json", b"[]"), ("plan.json", 10**12),
    ("plan.json", None), ("events.jsonl", b"[" * 100_000 + b"\n"), ("events.jsonl", None),
    ("events.jsonl", b'{"kind": "start", "params": [], "tags": {}, "time_ms": 1}\n'),
    ("events.jsonl", b'{"kind": "end", "status": "", "tags": {}, "trial": "trial-0000"}\n'),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content"), DAMAGE)
def test_damage_hides_no_other_sweep(folder: Path, name: str, content: bytes | int | None) -> None:
    """None stands for a folder in place of the file, a number for a file of so many bytes."""
    broken = shutil.copytree(folder, folder.with_name("broken-1"))
    (broken / name).unlink()
    if content is None:
        (broken / name).mkdir()
    elif isinstance(content, int):
        (broken / name).touch()
        os.truncate(broken / name, content)
    else:
        (broken / name).write_bytes(content)
    listed = json.loads(ask(folder, "list", "--json").stdout)
    told = {each["name"]: each["state"] for each in listed}
    assert told["broken-1"].startswith("unreadable")
    assert told[NAME] == "stopped"
    refused = ask(folder, "status", "broken-1")
    assert refused.exit_code in (1, 2)
    assert re.match("error: ", refused.stderr)
    assert "unexpected" not in refused.stderr


def test_a_number_without_end_is_not_counted_up(folder: Path) -> None:
    (folder / "checkpoints" / "trial-99999999999").mkdir(parents=True)
    assert sum(1 for _ in lost_in(folder, [], has_ended=False)) <= MOST + 10


def test_a_time_in_no_year_hides_no_other_sweep(folder: Path) -> None:
    broken = event_file(shutil.copytree(folder, folder.with_name("broken-1")))
    broken.write_text(re.sub(r'("time_ms": \d+)', r"\g<1>0000000", broken.read_text()))
    listed = json.loads(ask(folder, "list", "--json").stdout)
    assert {each["name"]: each["state"][:10] for each in listed}["broken-1"] == "unreadable"


LOST = [
    (None, "its events are missing: its metrics are lost"),
    ('"end"', "its end is missing: the metrics of its last epochs are lost"),
    ('"epoch": 1', "the metrics of these epochs are lost: 1"),
]


@pytest.mark.parametrize(("lost", "told"), LOST)
def test_what_the_event_log_has_lost_is_told(folder: Path, lost: str | None, told: str) -> None:
    """It is told beside the output. `lost` is in the line that is missing; None: all lines."""
    RunLog(folder, "trial-0002").append(Ended(status="KILLED", tags={}))
    RunLog(folder).append(Ended(status="FINISHED", tags={}))
    assert ask(folder, "status", NAME).stderr == ""
    log = event_file(folder)
    lines = log.read_text().splitlines(keepends=True)
    kept = [text for text in lines if "trial-0001" not in text or (lost and lost not in text)]
    assert len(kept) < len(lines)
    log.write_text("".join(kept))
    for words in (["status"], ["status", "--json"], ["best", "--json"], ["report"]):
        shown = ask(folder, words[0], NAME, *words[1:])
        assert shown.exit_code == 0
        assert f"warning: trial-0001: {told}\n" in shown.stderr
        assert words[-1] != "--json" or json.loads(shown.stdout)
    assert told in (folder / "report" / "index.html").read_text()
