"""Learning curves of a comparison: a panel per trained system, levels of those without training."""

import pytest
from matplotlib.figure import Figure

from mtcon_ray.base.status import Status
from mtcon_ray.comparison.curves import curves
from mtcon_ray.comparison.row import Row
from mtcon_ray.display import plotting
from mtcon_ray.records.results import TrialResult
from mtcon_ray.spec.run_spec import parse_spec
from tests.recorded import results_of


def row(title: str, *values: float, method: str = "mtcon", first: int = 1) -> Row:
    """Returns a system of one seed with these values from the first probed epoch on."""
    spec = parse_spec({"name": "x", "data": {"kind": "synthetic"}, "method": method})
    reports = tuple((epoch, {"val/accuracy": v}) for epoch, v in enumerate(values, start=first))
    trial = TrialResult("trial-0000", 0, {}, Status.FINISHED, None, reports[-1][0], 0, reports)
    return Row(title, results_of(spec, trial))


RANDOM = row("Random", 0.3, method="none")
MTCON = row("MTCon", 0.4, 0.5, 0.6, 0.7)


def test_systems_without_training_are_lines_in_the_panels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the legend, which names them too, only the line differs."""
    monkeypatch.setattr(plotting, "legend", lambda *_: None)
    assert curves([RANDOM, MTCON]) not in (None, curves([MTCON]))


def test_panels_have_the_whole_titles(drawn: list[Figure]) -> None:
    curves([row("XEnt multi-task, Kendall's weights", 0.5, 0.6)])
    title = drawn[0].axes[0].get_title(loc="left")
    assert title == "XEnt multi-task,\nKendall's weights"


def test_curves_need_two_epochs_of_a_system_that_trains() -> None:
    assert curves([RANDOM]) is None
    once = row("probed once", 0.5, first=4)
    assert len(once.finished) == 1
    assert curves([once]) is None


def test_other_means_are_drawn_in_each_panel() -> None:
    """So one more curve changes the figure, which leaves out a system without results."""
    lost = Row("XEnt", None, "out of disk")
    one = curves([MTCON])
    assert one is not None
    assert curves([MTCON, lost]) == one
    assert curves([MTCON, row("Other", 0.2, 0.6, 0.6, 0.6)]) != one
