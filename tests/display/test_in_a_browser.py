"""The report and the page of nearest images in a browser: wide, on a phone, light and dark."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.display.build import build_report, neighbours_page
from mtcon_ray.export.search import Neighbour
from tests.browser import SCREENS, Tab, browse, needs_chromium
from tests.display.conftest import TEMPERATURES, MakeSweep

pytestmark = [pytest.mark.slow, needs_chromium]

SHOWN = [(screen, scheme) for screen in SCREENS for scheme in ("light", "dark")]
# What a reader would have to scroll to the side for. Wide tables scroll in a box of their own.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BACKGROUND = "getComputedStyle(document.body).backgroundColor"
COLUMN = """
[...document.querySelectorAll('[aria-label=Leaderboard] tbody tr')]
  .map((row) => row.cells[{}].textContent.trim())
"""
CLICK = "document.querySelectorAll('[aria-label=Leaderboard] th button')[{}].click()"


async def fits(tab: Tab, scheme: str) -> None:
    assert await tab.run(OVERFLOW) <= 0
    dark = sum(map(int, (await tab.run(BACKGROUND))[4:-1].split(","))) < 3 * 128
    assert dark == (scheme == "dark")


@pytest.mark.parametrize(("screen", "scheme"), SHOWN)
def test_the_report_fits_the_screen_and_sorts(
    sweep: MakeSweep, tmp_path: Path, screen: str, scheme: str
) -> None:
    """A click sorts by number, high values first; the next click turns the order round."""
    path = build_report(sweep(statuses={0: "PRUNED", 1: "FAILED"}), ui_command="mlflow ui")
    headings = ["#", "trial", "configuration", "epochs", "val/accuracy"]

    async def column(tab: Tab, name: str) -> Sequence[str]:
        found: Sequence[str] = await tab.run(COLUMN.format(headings.index(name)))
        return found

    async def use(tab: Tab) -> None:
        await fits(tab, scheme)
        ranked = await column(tab, "trial")
        for falling in (True, False):
            await tab.run(CLICK.format(headings.index("val/accuracy")))
            texts = await column(tab, "val/accuracy")
            values = [float(text.split()[0]) for text in texts if "." in text]
            assert values == sorted(values, reverse=falling)
            assert len(values) > 3
        await tab.run(CLICK.format(headings.index("configuration")))
        shown = [text.partition("=")[2] for text in await column(tab, "configuration")]
        assert shown == [f"{value:g}" for value in TEMPERATURES[::-1]]
        for order in (ranked[::-1], ranked):
            await tab.run(CLICK.format(headings.index("#")))
            assert await column(tab, "trial") == order

    assert browse(use, tmp_path / "profile", path.as_uri(), screen, scheme) == []


@pytest.mark.parametrize(("screen", "scheme"), SHOWN)
def test_the_page_of_nearest_images_fits_the_screen(
    tmp_path: Path, screen: str, scheme: str
) -> None:
    images = np.zeros((6, 16, 16, 3), np.uint8)
    found = [[Neighbour(i, f"{'long' * 30}/{i}.png", 0.5) for i in range(6)]]
    path = tmp_path / "page.html"
    path.write_text(neighbours_page(["a.png"], [*images[:1]], found, images), encoding="utf-8")

    async def use(tab: Tab) -> None:
        await fits(tab, scheme)
        assert await tab.run("[...document.images].every((image) => image.naturalWidth > 0)")

    assert browse(use, tmp_path / "profile", path.as_uri(), screen, scheme) == []
