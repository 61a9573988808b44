"""Tables of a terminal: the same lines where all cells fit as from rich, which wraps them."""

from mtcon_ray.display.tables import Table


def test_lines_that_fit_are_aligned_as_rich_aligns_them() -> None:
    """Wide characters take two columns, and a cell with a line end has two lines."""
    rows = [["漢字", "1"], ["[b]é\x1b", "-12.5"]]
    expected = ["name          n", "漢字          1", r"[b]é\x1b  -12.5"]
    table = Table(["name", "n"], rows, right=[1])
    assert table.lines() == table.lines(15) == expected
    assert table.lines(14)[0] == "name         n", "rich wraps it"
    more = Table(["name", "n"], [*rows, ["two\nlines", "3"]], right=[1])
    assert more.lines() == [*expected, "two           3", "lines"]
