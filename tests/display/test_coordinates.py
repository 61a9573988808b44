"""The lines and axes of the parallel coordinates."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mtcon_ray.base.status import Status
from mtcon_ray.display.coordinates import BOTTOM, TOP, Axis, Line, coordinates
from tests.display.built_page import built
from tests.display.conftest import MakeSweep
from tests.some import some

MIDDLE = (TOP + BOTTOM) / 2
SEARCH = {
    "method.temperature": {"loguniform": [0.01, 1.0]},
    "method.weighting": {"choice": ["learned", "equal"]},
    "train.lr": {"choice": [0.1, 0.2]},
}
POINTS = [
    {"method.temperature": t, "method.weighting": w, "train.lr": 0.1}
    for t, w in ((0.01, "equal"), (0.1, "learned"), (1.0, "equal"))
]


def drawn(sweep: MakeSweep, **options: Any) -> tuple[list[Axis], list[Line]]:
    return some(coordinates(sweep(points=POINTS, search=SEARCH, **options)))


def test_a_line_passes_each_value_at_its_height(sweep: MakeSweep) -> None:
    """0.1 is half way on the logarithmic axis, and the winner's line is the last."""
    axes, lines = drawn(sweep, statuses={2: "PRUNED"})
    assert [title for title, *_ in axes] == ["temperature", "weighting", "lr", "val/accuracy"]
    (*_, temperatures), (*_, weightings), *_ = axes
    assert " ".join(text for _, text in temperatures) == "0.01 0.02 0.05 0.1 0.2 0.5 1"
    assert weightings == [(235.0, "equal"), (105.0, "learned")]
    heights = [[float(y) for y in re.findall(r",(\S+)", points)] for points, *_ in lines]
    assert heights[-1] == [MIDDLE, 105, MIDDLE, TOP]
    assert (heights[0][0], heights[0][-1]) == (TOP, BOTTOM)
    assert [look for _, look, _ in lines] == ["less than the full budget", "full budget", "winner"]
    assert lines[-1][-1].startswith("trial-0001: temperature=0.1 weighting=learned lr=0.1, ")


def test_only_several_fields_of_trials_with_a_value_are_drawn(sweep: MakeSweep) -> None:
    assert coordinates(sweep()) is None
    results = sweep(points=POINTS, search=SEARCH)
    first, *others = results.trials

    def lines(*reports: tuple[int, dict[str, float]]) -> Sequence[Line]:
        early = replace(first, reports=reports, status=Status.PRUNED)
        return some(coordinates(replace(results, trials=(early, *others))))[1]

    assert len(lines()) == 2
    assert lines((3, {"val/accuracy": 0.99}))[-1][1] == "winner"
    assert coordinates(replace(results, trials=())) is None
    assert len(some(coordinates(replace(results, trials=results.trials * 400)))[1]) == 1000


@pytest.mark.usefixtures("undrawn")
def test_the_page_draws_a_line_per_trial_with_its_values_as_text(sweep: MakeSweep) -> None:
    points = [{**point, "method.weighting": "<b>"} for point in POINTS]
    page = built(sweep(points=points, search=SEARCH))
    assert re.findall('--strength: (.+?)"', page.source) == ["0.33", "0.67", "1.00"]
    assert "trial-0001: temperature=0.1 weighting=<b> lr=0.1, val/accuracy 0.7" in page.text
    assert "b" not in page.tags
