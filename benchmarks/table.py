"""Markdown tables for README.md."""

from collections.abc import Sequence


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table; the first column is left-aligned, the others right-aligned."""
    rule = ("---", *("---:" for _ in header[1:]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))
