"""The report and the page of nearest images in Chromium: wide, on a phone, light and dark."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mtcon_ray.display.build import _picture, build_report, neighbours_page
from mtcon_ray.export.search import Neighbour
from tests.browser import BROWSER, HEADLESS
from tests.display.conftest import TEMPERATURES, MakeSweep
from tests.display.test_by_class import predicted
from tests.display.test_coordinates import POINTS, SEARCH
from tests.processes import run

pytestmark = BROWSER
screens = pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
# What a reader would have to scroll to the side for. Wide tables scroll in a box of their own.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
OVERFULL = """[...document.querySelectorAll('td')]
  .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
SORTED = """(() => {
  const leaderboard = document.querySelector('[aria-label=Leaderboard]');
  const texts = (row) => [...row.cells].map((cell) => cell.textContent.trim());
  return [null, 4, 4, 2, 0, 0].map((column) => {
    if (column !== null) leaderboard.querySelectorAll('th button')[column].click();
    return [...leaderboard.querySelectorAll('tbody tr')].map(texts);
  });
})()"""
LOADED = "[...document.images].every((image) => image.naturalWidth > 0)"
STYLE = "[...document.querySelectorAll('{}')].map((each) => getComputedStyle(each).{})"
FILLS = STYLE.format(".matrix td", "backgroundColor")
LINES = STYLE.format("polyline", "strokeOpacity")
HEIGHTS = """['scrollHeight', 'clientHeight']
  .map((name) => document.querySelector('figure svg').parentNode[name])"""


def found_in(page: Path, expression: str, width: int, scheme: str) -> Any:
    """Returns the value of a JavaScript expression in a page that is as wide as a screen.

    It is evaluated in a copy, because the page allows no script but its own. The browser may
    complain about neither of them.
    """
    text = page.read_text(encoding="utf-8")
    assert '<meta name="viewport" content="width=device-width' in text, "or a phone shrinks it"
    values = f"[{OVERFLOW}, {OVERFULL}, {BACKGROUND}, {expression}]"
    script = f"addEventListener('load', () => console.log(JSON.stringify({values})))"
    free = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", text)
    page.with_name("copy.html").write_text(f"{free}<script>{script}</script>", encoding="utf-8")
    both = page.with_name("both.html")
    both.write_text(f"<iframe src={page.name}></iframe><iframe src=copy.html width={width}>")
    dark = ["--force-dark-mode"] * (scheme == "dark")
    profile = f"--user-data-dir={page.with_name('profile')}"
    command = [*HEADLESS, "--window-size=1400,900", profile, *dark, both.as_uri()]
    told = re.findall(r":CONSOLE.*?\] (.*), source: ", run(command).stderr)
    assert len(told) == 1, told
    overflow, overfull, background, value = json.loads(told[0].strip('"'))
    assert (max(overflow, 0), overfull) == (0, [])
    assert (sum(map(int, re.findall(r"\d+", background))) < 3 * 128) == (scheme == "dark")
    return value


@screens
def test_the_report_fits_the_screen_and_sorts(sweep: MakeSweep, width: int, scheme: str) -> None:
    """A click sorts by number, high values first; the next click turns the order round."""
    path = build_report(sweep(statuses={0: "PRUNED", 1: "FAILED"}), ui_command="mlflow ui")
    ranked, falling, rising, by_configuration, last, first = found_in(path, SORTED, width, scheme)
    for rows, is_falling in ((falling, True), (rising, False)):
        values = [float(row[4].split()[0]) for row in rows if "." in row[4]]
        assert values == sorted(values, reverse=is_falling)
        assert len(values) > 3
    shown = [row[2].partition("=")[2] for row in by_configuration]
    assert shown == [f"{value:g}" for value in TEMPERATURES[::-1]]
    assert (last, first) == (ranked[::-1], ranked)


@screens
def test_shares_colour_matrix_and_ranks_lines(sweep: MakeSweep, width: int, scheme: str) -> None:
    results = predicted(sweep(points=POINTS, search=dict(list(SEARCH.items())[:2]), tasks=["kind"]))
    path = build_report(results, ui_command="mlflow ui")
    fills, lines, heights = found_in(path, f"[{FILLS}, {LINES}, {HEIGHTS}]", width, scheme)
    assert heights[0] <= heights[1], "the drawing is cut off"
    assert fills[1] == fills[2] != fills[0]
    assert lines == sorted(lines)
    assert len(set(lines)) == len(POINTS)


@screens
def test_a_page_of_nearest_images_fits_the_screen(tmp_path: Path, width: int, scheme: str) -> None:
    images = np.zeros((6, 16, 16, 3), np.uint8)
    found = [[Neighbour(i, f"{'long' * 30}/{i}.png", 0.5) for i in range(6)]]
    path = tmp_path / "page.html"
    path.write_text(neighbours_page(["a.png"], [*images[:1]], found, images), encoding="utf-8")
    assert found_in(path, LOADED, width, scheme)


def test_a_high_picture_keeps_its_shape_on_paper(sweep: MakeSweep) -> None:
    path = build_report(sweep(), ui_command="mlflow ui")
    picture = f'<img src="{_picture(np.zeros((1600, 400, 3), np.uint8))}'
    printed = re.sub('<img src="data:image/png[^"]*', picture, path.read_text(), count=1)
    both = printed.replace("@media print", "@media all").replace("@media screen", "@media print")
    path.write_text(both)
    size = "(({width, height}) => [width, height])(document.images[0])"
    width, height = found_in(path, size, 1300, "light")
    assert height == pytest.approx(4 * width, rel=0.01)
