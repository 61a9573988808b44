"""Damaged records: lines of event logs, recorded specs and plans, and sent parts of the logs."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.fuzz.base import CUT, SWEEP, WHOLE
from benchmarks.fuzz.damage import Damaged, damage_file, damage_text, damage_tree, odd_value, shown
from benchmarks.fuzz.specs import damage_recorded

NAMES = (WHOLE, CUT, SWEEP, SWEEP)
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
    b'{"kind": "report", "trial": 0, "epoch": 2, "metrics": {"loss": 1.0}, "time_ms": 1}',
    b'{"kind": "report", "trial": "trial-0000", "epoch": 2, "metrics": {"x": NaN}, "time_ms": 1}',
    b'{"kind": "report", "epoch": "2", "metrics": {"loss": "1"}, "time_ms": "1"}',
    b'{"kind": "report", "trial": "../x", "epoch": 2, "metrics": {}, "time_ms": 1}',
    b'{"kind": "report", "epoch": 2, "metrics": [], "time_ms": 1}',
    b'{"kind": "lost", "trial": "trial-0000", "reason": "x", "time_ms": 1}',
    b'{"kind": "earlier", "source": "a/b", "params": {}, "value": 0.5, "time_ms": 1}',
    b'{"kind": "reopen"}',
    b'{"kind": "artifact", "path": "../../x", "to": "../.."}',
    b"{" * 5000,
    b"[" * 100_000,
    b'{"x": ' + b"9" * 5000 + b"}",
    b'{"kind": "start", "params": 1, "tags": 2}',
    b'{"kind": "start", "params": {}, "tags": {}, "time_ms": 0}',
    b'{"kind": "start", "trial": "trial-0007", "params": {}, "tags": {}, "time_ms": 0}',
)


def damage_events(folder: Path, rng: Random, marker: Path) -> str:
    """Damages the event log of a training or of the sweep."""
    path = folder / "root" / "sweeps" / rng.choice(NAMES) / "events.jsonl"
    return _damaged(path, rng, 0.25, lambda: rng.choice(WAYS)(path.read_bytes(), rng))


def damage_record(folder: Path, rng: Random, marker: Path) -> str:
    """Damages the recorded spec, the plan or the file with the sent part of the event log."""
    name = rng.choice(("spec.yaml", "spec.yaml", "plan.json", "sent.json"))
    path = folder / "root" / "sweeps" / rng.choice(NAMES) / name
    change = damage_recorded if name == "spec.yaml" else _changed_json
    return _damaged(path, rng, 0.3, lambda: change(path, rng))


def _damaged(path: Path, rng: Random, share: float, change: Callable[[], Damaged]) -> str:
    """Damages a file's text in this share of the cases, else writes what `change` returns."""
    if rng.random() < share:
        return f"{path.parent.name}/" + damage_file(path, rng, damage_text)
    data, told = change()
    path.write_bytes(data)
    return f"{path.parent.name}/{path.name}: {told}"


def _changed_json(path: Path, rng: Random) -> Damaged:
    tree: Any = json.loads(path.read_bytes())
    told = damage_tree(tree, rng)
    return _json(tree), told


def _values(data: bytes, rng: Random) -> Damaged:
    """Changes values of an event, also its kind and the types of its fields."""
    lines = data.splitlines()
    number = rng.randrange(len(lines))
    event: Any = json.loads(lines[number])
    if rng.random() < 0.4:
        key = rng.choice([*event, "metrics", "epoch", "trial", "tags", "params", "status"])
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
