"""Drawing: curves with bands, points in the plane, histograms."""

from io import BytesIO

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from experiments.reproduction.figures import Curve, CurvePanel, curves_figure, fixed
from mtcon_ray.display import plotting
from mtcon_ray.evaluation.intervals import Interval


def test_curves_have_bands_and_leave_gaps(drawn: list[Figure]) -> None:
    points = [Interval(0.5, 0.4, 0.6, True), None, Interval(0.7, 0.6, 0.9, True)]
    panel = CurvePanel(
        "title", "accuracy (%)", {"ours": Curve([1, 2, 4], points)}, {"most": fixed([1, 4], [1, 1])}
    )
    png = curves_figure([panel, panel], "share (%)", log=True)
    assert Image.open(BytesIO(png)).width == pytest.approx(plotting.WIDTH * plotting.DPI, abs=2)
    axes = drawn[0].axes[0]
    assert (axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()) == (
        "title",
        "share (%)",
        "accuracy (%)",
    )
    lines = [line.get_xydata() for line in axes.lines]
    assert [np.asarray(line).tolist() for line in lines] == [[[1, 1], [4, 1]], [[1, 0.5], [4, 0.7]]]
    (band,) = axes.collections
    assert band.get_paths()[0].get_extents().bounds == (1, 0.4, 3, 0.5)
    assert axes.get_xscale() == "log"
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["ours", "most"]
