"""Tables of text: columns two blanks apart, aligned by the width that a terminal shows."""

import io
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from mtcon_ray.cli.terminal import Terminal
from mtcon_ray.presentation import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

GAP = 2


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

    Columns in `right` are right-aligned. Those in `wrapped` continue on further lines if the table
    is wider than `columns`.

    >>> table_lines(["a", "n"], [["x", "10"], ["yy", "5"]], right=[1])
    ['a    n', 'x   10', 'yy   5']
    """
    table = new_table()
    for place, title in enumerate(header):
        table.add_column(
            cell(title),
            justify="right" if place in right else "left",
            no_wrap=place not in wrapped,
        )
    for row in rows:
        table.add_row(*map(cell, row))
    return text_lines(table, columns)


def text_lines(renderable: "RenderableType", columns: int | None = None) -> list[str]:
    """Returns the lines of anything that `rich` draws, without colours."""
    stream = io.StringIO()
    console = Terminal(stream, live=False, colour=False, unicode=True).console()
    console.width = columns or console.width
    console.print(renderable)
    return [line.rstrip() for line in stream.getvalue().split("\n")[:-1]]


def width(rows: Iterable[Sequence[str]]) -> int:
    """Returns the columns that a table of these rows takes without wrapping."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    return sum(widths) + GAP * (len(widths) - 1)


def clipped(text: str, columns: int) -> str:
    """Returns the text cut to a number of columns, with "…" where something is missing.

    >>> clipped("failed: 画像がない", 13)
    'failed: 画像…'
    """
    from rich.text import Text

    shown = Text(printable(text))
    shown.truncate(columns, overflow="ellipsis")
    return shown.plain
