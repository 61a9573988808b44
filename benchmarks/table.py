"""Tables to paste into README.md."""

from collections.abc import Sequence


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    rule = ("---", *("---:" for _ in header[1:]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))
