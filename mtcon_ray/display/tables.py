"""Tables of texts. The same rows become lines of a terminal, Markdown, or HTML in a template."""

import io
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Self

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from mtcon_ray.display.presentation import one_line, printable

GAP = 2
# A longer word may be broken in a narrow terminal. Numbers and names of trials are shorter.
LONGEST_WORD = 24
# Wider than any line: without a terminal nothing is shortened or wrapped.
UNLIMITED_COLUMNS = 100_000


class Table(NamedTuple):
    """Column names and rows of texts. `right` has the places of right-aligned columns.

    `best` is the place of a page's highlighted row.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    best: int | None = None

    @classmethod
    def of(
        cls, data: Mapping[str, Sequence[str]], right: Collection[int] = (), best: int | None = None
    ) -> Self:
        """Returns a table of columns by name."""
        return cls(list(data), list(zip(*data.values(), strict=True)), right, best)

    def lines(self, columns: int | None = None) -> list[str]:
        """Returns the lines for a terminal of width `columns`, or of any width with None.

        In a wider table texts continue on further lines. If that is not enough, the lines are
        longer than the terminal is wide.

        >>> Table(["a", "n"], [["x", "10"], ["yy", "5"]], right=[1]).lines()
        ['a    n', 'x   10', 'yy   5']
        """
        lines = [[printable(text) for text in line] for line in (self.header, *self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
        fits = columns is None or sum(widths) + GAP * (len(widths) - 1) <= columns
        if fits and {"\n", "\t"}.isdisjoint("".join(map("".join, lines))):
            return [self._line(line, widths) for line in lines]  # rich takes ten times as long
        console = Console(file=io.StringIO(), width=columns or UNLIMITED_COLUMNS, color_system=None)
        grid = Grid(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
        for place, texts in enumerate(zip(self.header, *self.rows, strict=True)):
            longest = max((cell_len(word) for word in " ".join(texts).split()), default=0)
            grid.add_column(
                cell(texts[0]),
                justify="right" if place in self.right else "left",
                min_width=min(LONGEST_WORD, longest),
            )
        for row in self.rows:
            grid.add_row(*map(cell, row))
        with console.capture() as written:
            console.print(grid, crop=False)
        return [line.rstrip() for line in written.get().split("\n")[:-1]]

    def _line(self, texts: Sequence[str], widths: Sequence[int]) -> str:
        cells = []
        for place, (text, width) in enumerate(zip(texts, widths, strict=True)):
            space = " " * (width - cell_len(text))
            cells.append(space + text if place in self.right else text + space)
        return (" " * GAP).join(cells).rstrip()

    def markdown(self) -> str:
        """Returns the table in Markdown.

        >>> print(Table(["a", "n"], [["x|y", "10"]], right=[1]).markdown(), end="")
        | a | n |
        | --- | ---: |
        | x/y | 10 |
        """
        rule = ["---:" if place in self.right else "---" for place in range(len(self.header))]
        lines = [self.header, rule, *self.rows]
        cells = ([one_line(text).replace("|", "/") for text in line] for line in lines)
        return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def cell(text: str, *, shortened: bool = False) -> Text:
    """Returns a cell in which no control character and no markup has an effect.

    A shortened cell is cut to the width of the terminal with "…", others wrap.
    """
    return Text(printable(text), no_wrap=shortened, overflow="ellipsis" if shortened else "fold")
