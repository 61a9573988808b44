"""Markdown tables for README.md."""

from collections.abc import Sequence

from mtcon_ray.display.tables import Table


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table with the first column left-aligned, the others right-aligned."""
    return Table(header, rows, right=range(1, len(header))).markdown().removesuffix("\n")
