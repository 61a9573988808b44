"""Damaged records: lines of event logs and of the study's journal, and recorded specs."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fuzz.base import CUT, SWEEP, WHOLE
from benchmarks.fuzz.damage import Damaged, damage_file, damage_text, damage_tree, odd_value, shown
from benchmarks.fuzz.specs import damage_recorded

LOGS = (
    f"runs/{WHOLE}/spool/parent.jsonl",
    f"runs/{CUT}/spool/parent.jsonl",
    f"sweeps/{SWEEP}/spool/parent.jsonl",
    f"sweeps/{SWEEP}/spool/trial-0000.jsonl",
    f"sweeps/{SWEEP}/spool/trial-0001.jsonl",
)
LINES = (
    b"",
    b" ",
    b"null",
    b"[]",
    b"{}",
    b"7",
    b'"x"',
    b'{"kind": 1}',
    b'{"kind": ["report"]}',
    b"\xff",
    b'{"kind": "start"}',
    b'{"kind": "report"}',
    b'{"kind": "end", "status": "X", "tags": {}}',
    b'{"seq": 3, "kind": "report", "epoch": 2, "metrics": {"loss": NaN}, "time_ms": 1}',
    b'{"seq": "3", "kind": "report", "epoch": "2", "metrics": {"loss": "1"}, "time_ms": "1"}',
    b'{"seq": 3, "kind": "report", "epoch": 2, "metrics": [], "time_ms": 1}',
    b'{"kind": "reopen"}',
    b'{"kind": "artifact", "path": "../../x", "to": "../.."}',
    b"{" * 5000,
    b"[" * 100_000,
    b'{"x": ' + b"9" * 5000 + b"}",
    b'{"kind": "start", "params": 1, "tags": 2, "seq": 0}',
    b'{"kind": "start", "params": {}, "tags": {}, "seq": 0, "time_ms": 0}',
)


def damage_events(folder: Path, rng: Random, marker: Path) -> str:
    """Damages an event log of the trainings or of the sweep."""
    return _damage(folder / "root" / rng.choice(LOGS), rng)


def damage_journal(folder: Path, rng: Random, marker: Path) -> str:
    """Damages the journal of the sweep's study."""
    return _damage(folder / "root" / "sweeps" / SWEEP / "study.journal", rng)


def damage_record(folder: Path, rng: Random, marker: Path) -> str:
    """Damages the recorded spec of a training or of the sweep."""
    name = rng.choice((f"runs/{WHOLE}", f"runs/{CUT}", f"sweeps/{SWEEP}", f"sweeps/{SWEEP}"))
    path = folder / "root" / name / "spec.yaml"
    if rng.random() < 0.3:
        return f"{name}/" + damage_file(path, rng, damage_text)
    data, told = damage_recorded(path, rng)
    path.write_bytes(data)
    return f"{name}/spec.yaml: {told}"


def _damage(path: Path, rng: Random) -> str:
    if rng.random() < 0.25:
        return f"{path.parent.parent.name}/" + damage_file(path, rng, damage_text)
    data, told = rng.choice(WAYS)(path.read_bytes(), rng)
    path.write_bytes(data)
    return f"{path.parent.parent.name}/{path.name}: {told}"


def _values(data: bytes, rng: Random) -> Damaged:
    """Changes values of an event, also its kind and the types of its fields."""
    lines = data.splitlines()
    number = rng.randrange(len(lines))
    event: Any = json.loads(lines[number])
    if rng.random() < 0.4:
        key = rng.choice([*event, "metrics", "epoch", "seq", "tags", "params", "status"])
        event[key] = odd_value(rng)
        told = f"{key} = {shown(event[key])}"
    else:
        told = damage_tree(event, rng)
    lines[number] = _json(event)
    return b"\n".join(lines) + b"\n", f"line {number}: {told}"


def _json(event: Any) -> bytes:
    try:
        return json.dumps(event).encode()
    except ValueError:  # an integer of more digits than Python prints
        return b'{"kind": ' + b"9" * 5000 + b"}"


def _lines(data: bytes, rng: Random) -> Damaged:
    """Removes, repeats, replaces or moves lines."""
    lines = data.splitlines(keepends=True)
    number = rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            told = f"line {number} removed"
            del lines[number]
        case 1:
            told = f"line {number} repeated"
            lines.insert(rng.randrange(len(lines)), lines[number])
        case 2:
            told = "lines in another order"
            rng.shuffle(lines)
        case 3:
            new = rng.choice(LINES)
            told = f"line {number} is {new[:70]!r}"
            lines[number] = new + b"\n"
        case _:
            new = rng.choice(LINES)
            told = f"line {new[:70]!r} added before {number}"
            lines.insert(number, new + b"\n")
    return b"".join(lines), told


WAYS: tuple[Callable[[bytes, Random], Damaged], ...] = (_values, _values, _lines)
