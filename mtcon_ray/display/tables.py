"""Tables of texts. The same rows become lines of a terminal, Markdown, or HTML in a template."""

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Self

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from mtcon_ray.display.presentation import one_line, printable

GAP = 2
# A longer word may be broken in a narrow terminal. Numbers and names of trials are shorter.
LONGEST_WORD = 24
# Wider than any line: without a terminal nothing is shortened or wrapped.
UNLIMITED_COLUMNS = 100_000


@dataclass(frozen=True)
class Table:
    """Column names and rows of texts. `right` has the places of right-aligned columns.

    `best` is the place of a page's highlighted row.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    best: int | None = None

    @classmethod
    def of(
        cls,
        columns: Mapping[str, Sequence[str]],
        right: Collection[int] = (),
        best: int | None = None,
    ) -> Self:
        """Returns a table of columns by name."""
        return cls(list(columns), list(zip(*columns.values(), strict=True)), right, best)

    def lines(self, columns: int | None = None) -> list[str]:
        """Returns the lines for a terminal of width `columns`, or of any width with None.

        In a wider table texts continue on further lines. If that is not enough, the lines are
        longer than the terminal is wide.

        >>> Table(["a", "n"], [["x", "10"], ["yy", "5"]], right=[1]).lines()
        ['a    n', 'x   10', 'yy   5']
        """
        console = Console(file=io.StringIO(), width=UNLIMITED_COLUMNS, color_system=None)
        grid = new_grid()
        lines = [[cell(text) for text in line] for line in (self.header, *self.rows)]
        least, widths = [], []
        for texts in zip(*lines, strict=True):
            sizes = [Measurement.get(console, console.options, text) for text in texts]
            least.append(min(LONGEST_WORD, max(size.minimum for size in sizes)))
            widths.append(max(size.maximum for size in sizes))
        room = UNLIMITED_COLUMNS if columns is None else columns - GAP * (len(widths) - 1)
        while sum(widths) > room and (wide := [i for i, w in enumerate(widths) if w > least[i]]):
            widths[max(wide, key=widths.__getitem__)] -= 1
        for place, title in enumerate(lines[0]):
            justify: Literal["left", "right"] = "right" if place in self.right else "left"
            grid.add_column(title, justify=justify, width=widths[place])
        for line in lines[1:]:
            grid.add_row(*line)
        with console.capture() as written:
            console.print(grid)
        return [line.rstrip() for line in written.get().split("\n")[:-1]]

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

    A shortened cell is cut to the width of its column with "…", others wrap.
    """
    return Text(printable(text), no_wrap=shortened, overflow="ellipsis" if shortened else "fold")


def new_grid() -> Grid:
    """Returns an empty table of `rich` without lines."""
    return Grid(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
