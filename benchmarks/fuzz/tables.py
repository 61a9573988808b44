"""Damaged CSVs: cells, columns, separators, quotes and names of images."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from benchmarks.fuzz.base import TABLE
from benchmarks.fuzz.damage import ODD_TEXTS, damage_file, damage_text, shown

Rows = list[list[str]]
OUTSIDE = (
    "../labels.csv",
    "/etc/passwd",
    "..",
    ".",
    "",
    "images",
    "a/../../labels.csv",
    "0.png/",
    "\\0.png",
    "0.png\0",
    "//0.png",
    "./0.png",
    "x" * 5000,
    "0.png\n",
    "é.png",
    "C:\\0.png",
    "~/0.png",
    "away.png",
    "folder.png",
)
CELLS = (
    "",
    " ",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e400",
    "1e308",
    "9" * 400,
    "0x10",
    "1,5",
    "|",
    "||",
    "a||b",
    "|".join(map(str, range(200))),
    "TRUE",
    "None",
    *ODD_TEXTS,
)


def damage_table(folder: Path, rng: Random, marker: Path) -> str:
    """Damages the CSV of the shop: its text, or its cells and columns."""
    path = folder / "shop" / TABLE
    if rng.random() < 0.3:
        return damage_file(path, rng, damage_text)
    images = folder / "shop" / "images"
    (images / "away.png").symlink_to("/etc/passwd")
    (images / "folder.png").mkdir()
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    told = [rng.choice(WAYS)(rows, rng) for _ in range(rng.choice((1, 1, 2, 3)))]
    separator = rng.choice((",",) * 8 + (";", "\t", "|"))
    end = rng.choice(("\n",) * 8 + ("\r\n", "\r", "\n\n"))
    text = "".join(separator.join(row) + end for row in rows)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return "; ".join([*told, f"separator {separator!r}, line end {end!r}"])


def _cells(rows: Rows, rng: Random) -> str:
    """Changes some or all cells of a column."""
    column = rng.randrange(len(rows[0]))
    value, share = rng.choice(CELLS), rng.choice((0.02, 0.3, 1.0))
    for row in rows[1:]:
        if len(row) > column and rng.random() < share:
            row[column] = value
    return f"{share:.0%} of column {column} are {shown(value)}"


def _names(rows: Rows, rng: Random) -> str:
    """Changes image names to paths elsewhere or nowhere."""
    name, share = rng.choice(OUTSIDE), rng.choice((0.02, 1.0))
    for row in rows[1:]:
        if rng.random() < share:
            row[0] = name
    return f"{share:.0%} of the images are {shown(name)}"


def _header(rows: Rows, rng: Random) -> str:
    """Renames a column, sometimes to another column's name."""
    column = rng.randrange(len(rows[0]))
    rows[0][column] = rng.choice((*ODD_TEXTS, *rows[0], *rows[0], *rows[0]))
    return f"column {column} is named {shown(rows[0][column])}"


def _column(rows: Rows, rng: Random) -> str:
    """Removes or repeats a column."""
    column, gone = rng.randrange(len(rows[0])), rng.random() < 0.5
    for row in rows:
        row[column : column + 1] = [] if gone else row[column : column + 1] * 2
    return f"column {column} is {'removed' if gone else 'there twice'}"


def _row(rows: Rows, rng: Random) -> str:
    """Removes, repeats or shortens rows, the header too."""
    row = rng.randrange(len(rows))
    match rng.randrange(6):
        case 0:
            del rows[row]
            return f"row {row} removed"
        case 1:
            rows[:] += [[*rows[row]] for _ in range(rng.choice((1, 200)))]
            return f"row {row} repeated"
        case 2:
            del rows[row][rng.randrange(len(rows[row])) :]
            return f"row {row} shortened"
        case 3:
            rows[row] += ["x"] * rng.choice((1, 3, 20_000))
            return f"row {row} lengthened"
        case 4:
            del rows[rng.choice((1, 2, 5)) :]
            return f"only {len(rows)} rows"
        case _:
            rows.insert(row, rng.choice(([], [""], ["#"], ["", "", "", "", ""])))
            return f"a blank row {row}"


def _quote(rows: Rows, rng: Random) -> str:
    """Inserts unclosed quotes, or quotes around separators and line ends."""
    row = rows[rng.randrange(len(rows))] or rows[0]
    cell = rng.randrange(len(row))
    row[cell] = rng.choice(('"', '"x', 'x"y', '"a""', '"a,b"', '"a\nb"', '"' * 5, "'a,b'"))
    return f"a cell is {row[cell]!r}"


def _splits(rows: Rows, rng: Random) -> str:
    """Changes the words of the splits."""
    words = rng.choice(
        (("train",), ("val", "test"), ("Train", "VAL", "Test"), ("", "train"), ("0", "1"))
    )
    for row in rows[1:]:
        if len(row) > 1:
            row[1] = rng.choice(words)
    return f"splits are {words}"


WAYS: tuple[Callable[[Rows, Random], str], ...] = (
    _cells,
    _cells,
    _cells,
    _names,
    _header,
    _header,
    _column,
    _row,
    _row,
    _quote,
    _splits,
)
