"""Fixtures of the experiments' tests."""

from collections.abc import Callable

import pytest
from matplotlib.figure import Figure

from mtcon_ray.report import plotting


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Returns the list of the figures that are drawn."""
    found: list[Figure] = []
    png: Callable[[Figure], bytes] = plotting.png

    def keep(figure: Figure) -> bytes:
        found.append(figure)
        return png(figure)

    monkeypatch.setattr(plotting, "png", keep)
    return found
