"""Damaged specs: values of other types in fields of the schema, and unusual YAML."""

from pathlib import Path
from random import Random
from typing import Any

import yaml

from benchmarks.fuzz.base import SPEC
from benchmarks.fuzz.damage import (
    Damaged,
    damage_file,
    damage_text,
    damage_tree,
    odd_value,
    shown,
)
from mtcon_ray.base.registry import field_paths
from mtcon_ray.spec.run_spec import RunSpec

# Lines that may confuse a YAML reader. The first lines would run code in an unsafe reader.
LINES = (
    '!!python/object/apply:os.system ["touch {marker}"]',
    'x: !!python/object/new:os.system ["touch {marker}"]',
    "x: &a [*a]",
    "a: &a {{x: 1}}\nb: *a",
    "<<: {{name: x}}",
    "name: shop\nname: shop",
    "? [a, b]\n: 1",
    "---\nname: two",
    "%YAML 9.9\n---\n",
    "\tname: x",
    "name: x: y",
    "x: 2020-13-45",
    "x: 2020-01-01",
    "1: 2",
    "null: 1",
    "true: 1",
    "1.5: x",
    "x: !!binary '@@'",
    "x: !!set {{a}}",
    "x: 'open",
    "[",
    "}}",
    "x: " + "9" * 5000,
    "x: " + "[" * 5000,
    "x: " + "{{a: " * 3000,
    "- " * 2000,
    "x: \x07",
    "x: \x85",
    "name: null",
    "name: [1]",
    "train:",
    "train: 5",
    "data: []",
    "version: 2",
    "version: '1'",
    "seed: -1",
    "plugins: [os]",
    "plugins: 7",
    "search: {{space: {{train.lr: {{grid: []}}}}}}",
    "search: {{space: {{train: {{grid: [1]}}}}}}",
    "search: {{space: {{'': {{grid: [1]}}}}}}",
    "search: {{space: {{name: {{grid: [a, b]}}}}}}",
    "search: {{space: {{train.lr: 0.1}}}}",
    "search: {{space: {{train.lr: {{loguniform: [1, 0]}}}}}}",
    "search: {{space: {{train.lr: {{uniform: [-.inf, .inf]}}}}}}",
    "search: {{space: {{train.epochs: {{int: [1, 1e300]}}}}}}",
    "search: {{space: {{views.size: {{grid: [16, 1000000000]}}}}}}",
)


def damage_spec(folder: Path, rng: Random, marker: Path) -> str:
    """Damages the spec of the shop in a single place or several places."""
    path = folder / "shop" / SPEC
    match rng.randrange(10):
        case 0 | 1:
            return damage_file(path, rng, damage_text)
        case 2 | 3:
            line = rng.choice(LINES).format(marker=marker)
            text = path.read_text(encoding="utf-8")
            before = rng.random() < 0.3
            path.write_text(f"{line}\n{text}" if before else f"{text}{line}\n", encoding="utf-8")
            return f"{'first' if before else 'last'} line {shown(line)}"
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    count = rng.choice((1, 1, 1, 2, 4))
    told = [_set(tree, rng) if rng.random() < 0.6 else damage_tree(tree, rng) for _ in range(count)]
    path.write_bytes(written(tree))
    return "; ".join(told)


def _set(tree: Any, rng: Random) -> str:
    """Sets a field of the schema to an odd value, for any kind of its section."""
    *sections, name = rng.choice(field_paths(RunSpec)).split(".")
    for section in sections:
        if not isinstance(tree.get(section), dict):
            tree[section] = {}
        tree = tree[section]
    tree[name] = odd_value(rng)
    return f"{'.'.join((*sections, name))} = {shown(tree[name])}"


def written(tree: Any) -> bytes:
    """Returns a tree as YAML, including integers of more digits than Python prints."""
    text: str = yaml.dump(tree, Dumper=yaml.SafeDumper, sort_keys=False, allow_unicode=True)
    return text.encode("utf-8", "surrogatepass")


def damage_recorded(path: Path, rng: Random) -> Damaged:
    """Returns the recorded spec of a sweep or training with a changed value."""
    tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    told = damage_tree(tree, rng)
    return written(tree), told
