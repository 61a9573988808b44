"""Values as people read them: numbers, durations, sizes, configurations, tables."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mtcon_ray.cli.terminal import clip, printable, visible

GAP = "  "
INDENT = "   "
UNITS = ("B", "kB", "MB", "GB", "TB")


def number(value: Any) -> str:
    """A searched value: floats to four digits, everything else as it is.

    >>> number(0.0316227766), number(12), number(None), number([0.5, True])
    ('0.03162', '12', 'null', '[0.5, true]')
    """
    if isinstance(value, list):
        value = json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return f"{value:.4g}" if isinstance(value, float) else printable(str(value))


def accuracy(value: float | None, deviation: float | None = None) -> str:
    """A fraction with its bootstrap deviation.

    >>> accuracy(0.71234, 0.0101)
    '0.712 ±0.010'
    """
    if value is None:
        return "-"
    return f"{value:.3f}" if deviation is None else f"{value:.3f} ±{deviation:.3f}"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> duration(75), duration(3725.4)
    ('1:15', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def size(num_bytes: float) -> str:
    """Bytes in the unit that keeps the number short.

    >>> size(512), size(93_000_000)
    ('512 B', '93.0 MB')
    """
    for unit in UNITS[:-1]:
        if num_bytes < 1000:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} {UNITS[-1]}"


def short_paths(paths: Iterable[str]) -> dict[str, str]:
    """Each dotted path's last keys, as many as tell it from the others.

    >>> short_paths(["method.temperature", "train.lr"])
    {'method.temperature': 'temperature', 'train.lr': 'lr'}
    """
    keys = {path: path.split(".") for path in paths}
    short: dict[str, str] = {}
    for path, parts in keys.items():
        for n in range(1, len(parts) + 1):
            short[path] = ".".join(parts[-n:])
            if sum(other[-n:] == parts[-n:] for other in keys.values()) == 1:
                break
    return short


def configuration(params: Mapping[str, Any]) -> str:
    """Searched fields and their values in one line.

    >>> configuration({"method.temperature": 0.1, "train.epochs": 8})
    'temperature=0.1 epochs=8'
    """
    short = short_paths(params)
    text = " ".join(f"{short[path]}={number(value)}" for path, value in params.items())
    return text or "no searched fields"


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()
) -> list[str]:
    """Lines of columns, two blanks apart; columns in `right` are right-aligned.

    >>> table(["a", "n"], [["x", "10"], ["yy", "5"]], right=[1])
    ['a    n', 'x   10', 'yy   5']
    """
    lines = [list(header), *map(list, rows)]
    widths = _widths(lines)
    to_right = set(right)

    def cell(text: str, column: int) -> str:
        space = " " * (widths[column] - visible(text))
        return space + text if column in to_right else text + space

    return [GAP.join(cell(text, i) for i, text in enumerate(line)).rstrip() for line in lines]


def shortened(
    lines: Sequence[Sequence[str]], columns: int, least: Iterable[tuple[int, int]]
) -> tuple[list[list[str]], bool]:
    """Cuts cells until the table is at most `columns` wide; returns them, and True if it is.

    `least` names, in their order, the columns that may be cut, each with the width it keeps.

    >>> shortened([["name", "n"], ["abcdefgh", "5"]], 8, [(0, 4)])
    ([['name', 'n'], ['abcd…', '5']], True)
    """
    cells = [list(line) for line in lines]
    for column, fewest in least:
        widths = _widths(cells)
        kept = widths[column] - max(0, _total(widths) - columns)
        for line in cells:
            line[column] = clip(line[column], max(fewest, kept))
    return cells, _total(_widths(cells)) <= columns


def folded(lines: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Returns the lines of a table that is too wide; each row continues on indented lines.

    >>> folded([["#", "name", "n"], ["1", "abc", "5"]], 7)
    ['#  name', '   n', '1  abc', '   5']
    """
    widths = _widths(lines)
    groups: list[list[int]] = [[]]
    for i in range(len(widths)):
        indent = len(INDENT) if len(groups) > 1 else 0
        if groups[-1] and indent + _total([widths[j] for j in (*groups[-1], i)]) > columns:
            groups.append([])
        groups[-1].append(i)
    header, *rows = lines
    parts = [
        table([header[i] for i in group], [[row[i] for i in group] for row in rows])
        for group in groups
    ]
    return [
        (INDENT if n else "") + part
        for line in zip(*parts, strict=True)
        for n, part in enumerate(line)
    ]


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(visible, column)) for column in zip(*lines, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)
