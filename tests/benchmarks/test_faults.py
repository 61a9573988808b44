"""Fault injection: its page."""

from benchmarks.faults import program
from benchmarks.faults.jobs import REPOSITORY


def test_each_kind_is_on_its_page() -> None:
    page = (REPOSITORY / "docs" / "reliability.md").read_text(encoding="utf-8")
    rows = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert rows[: len(program.KINDS)] == list(program.KINDS)
