"""Tables of text: columns two blanks apart, aligned by the width that a terminal shows."""

import io
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from mtcon_ray.cli.terminal import Terminal
from mtcon_ray.presentation import printable

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

GAP = 2
# Of a wrapped column, with its gap.
LEAST_COLUMNS = 12


def cell(text: str, *, shortened: bool = False) -> "Text":
    """Returns a cell in which no control character and no markup has an effect.

    A shortened one is cut to its column's width with "…", others wrap.
    """
    from rich.text import Text

    return Text(printable(text), no_wrap=shortened, overflow="ellipsis" if shortened else "fold")


def new_table() -> "Table":
    """Returns an empty table without lines."""
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")


def table_lines(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    wrapped: Collection[int] = (),
    columns: int | None = None,
) -> list[str]:
    """Returns the lines of a table.

    Columns in `right` are right-aligned. If the table is wider than `columns`, those in `wrapped`
    continue on further lines; if that is not enough, the lines are longer.

    >>> table_lines(["a", "n"], [["x", "10"], ["yy", "5"]], right=[1])
    ['a    n', 'x   10', 'yy   5']
    """
    table, lines = new_table(), [header, *rows]
    for place, title in enumerate(header):
        table.add_column(
            cell(title),
            justify="right" if place in right else "left",
            no_wrap=place not in wrapped,
        )
    for row in lines[1:]:
        table.add_row(*map(cell, row))
    stream = io.StringIO()
    console = Terminal(stream, live=False).console()
    fixed = [place for place in range(len(header)) if place not in wrapped]
    # In less room `rich` would cut every column.
    if columns is not None and width(lines, fixed) + len(wrapped) * LEAST_COLUMNS <= columns:
        console.width = columns
    console.print(table)
    return [line.rstrip() for line in stream.getvalue().split("\n")[:-1]]


def width(lines: Iterable[Sequence[str]], places: Iterable[int]) -> int:
    """Returns how wide these columns of a table are without wrapping, their gaps included."""
    from rich.cells import cell_len

    columns = list(zip(*lines, strict=True))
    return sum(max(map(cell_len, columns[place])) + GAP for place in places)


def clipped(text: str, columns: int) -> str:
    """Returns the text cut to a number of columns, with "…" where something is missing.

    >>> clipped("failed: 画像がない", 13)
    'failed: 画像…'
    """
    from rich.text import Text

    shown = Text(printable(text))
    shown.truncate(columns, overflow="ellipsis")
    return shown.plain
