"""Drawing: curves with bands, points in the plane, histograms."""

import math
from io import BytesIO

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from experiments.reproduction.figures import (
    BARS,
    CLASSES,
    LOOKS,
    REFERENCES,
    Curve,
    CurvePanel,
    HistogramPanel,
    PlanePanel,
    curves_figure,
    fixed,
    histograms_figure,
    plane_figure,
)
from mtcon_ray.evaluation.intervals import Interval
from mtcon_ray.report import plotting


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


def test_an_interval_without_end_has_no_band(drawn: list[Figure]) -> None:
    endless = Interval(0.5, -math.inf, math.inf, False)
    curves_figure([CurvePanel("a", "b", {"c": Curve([1, 2], [endless, endless])})], "x")
    assert not drawn[0].axes[0].collections
    assert drawn[0].axes[0].get_ylim()[1] < 1


def test_styles_differ_in_grey() -> None:
    """Colours are lost in print, so line or marker or hatching must differ."""
    for looks, fields in (
        (LOOKS, ("linestyle", "marker")),
        (REFERENCES, ("linestyle and marker",)),
        (CLASSES, ("marker",)),
        (BARS, ("hatch",)),
    ):
        for name in fields:
            values = [str([look.get(part) for part in name.split(" and ")]) for look in looks]
            assert len(set(values)) == len(values)


def test_frequent_classes_are_told_apart_in_grey_where_their_markers_merge() -> None:
    greys = sorted(
        float(np.dot(to_rgb(look["color"]), (0.299, 0.587, 0.114))) for look in CLASSES[:4]
    )
    assert np.diff([*greys, 1.0]).min() >= 0.15


def test_frequent_classes_are_named_and_others_grey(drawn: list[Figure]) -> None:
    num = len(CLASSES) + 2
    code_N = np.concatenate([np.repeat(np.arange(num), np.arange(1, num + 1)), [-1, -1]])
    place_N2 = np.random.default_rng(0).standard_normal((len(code_N), 2))
    names = [f"class {i}" for i in range(num)]
    plane_figure([PlanePanel("head", place_N2, code_N, names)], "t-SNE")
    axes = drawn[0].axes[0]
    legend = axes.get_legend()
    assert legend is not None
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts == ["2 others", *names[:1:-1]]
    # All labelled items are drawn, the rarest two classes as "others".
    sizes = [len(np.asarray(line.get_xydata())) for line in axes.lines]
    assert sizes == [1 + 2, *range(num, 2, -1)]
    assert axes.get_xlabel() == "t-SNE axis 1 (no unit)"


def test_histograms_are_shares_and_keep_what_lies_outside(drawn: list[Figure]) -> None:
    samples = {"a": np.array([0.1, 0.1, 0.9, 7.0]), "b": np.array([-3.0, 0.5])}
    histograms_figure([HistogramPanel("t", "cosine", samples, (0.0, 1.0))] * 2, columns=2)
    heights = [patch.get_path().get_extents().y1 for patch in drawn[0].axes[0].patches]
    assert heights == [0.5, 0.5]
    first, second = drawn[0].axes
    assert first.get_xlabel() == "cosine"
    assert (first.get_ylabel(), second.get_ylabel()) == ("share of pairs (fraction)", "")
