"""The report page of every kind of sweep."""

import html
import math
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from typing import Any
from unittest.mock import Mock, patch

import pytest
from matplotlib.axes import Axes

from mtcon_ray.base.metrics import OBJECTIVE
from mtcon_ray.display import plotting
from mtcon_ray.display.build import draw, epochs_figure
from mtcon_ray.records.events import Started
from mtcon_ray.spec.run_spec import dump_spec, parse_recorded
from tests.display.built_page import built
from tests.display.conftest import MakeSweep
from tests.recorded import plan_with

pytestmark = pytest.mark.slow  # each page has figures, a second or two of processor time
reads_words = pytest.mark.usefixtures("undrawn")

HTML_NAME = '<script>alert("1")</script> & more'


@reads_words
def test_a_temperature_sweep_is_told_in_full(sweep: MakeSweep) -> None:
    """Headline, facts, tables, figures, failure and commands have this sweep's numbers."""
    results = sweep(statuses={0: "PRUNED", 1: "FAILED", 5: "PRUNED", 6: "PRUNED"})
    page = built(results)
    winner = results.required_winner()
    sentence = page.text.split("Trials 7")[0]
    assert f"temperature={winner.params['method.temperature']} won" in sentence
    assert f"{winner.value:.3f} ±" in sentence
    assert "bootstrap deviations) above the runner-up" in sentence
    assert "3 finished, 3 stopped early, 1 failed" in page.text
    assert "Epochs 82 of 140 that all trials have" in page.text
    assert "trial-0001 gradient is not finite" in page.text
    assert f"mtcon-ray sweep {results.folder}/spec.yaml" in page.text
    assert f"mtcon-ray train --from {results.name} --root " in page.text
    assert "mlflow ui" in page.text
    assert "Warnings" not in page.text


def test_page_is_self_contained(sweep: MakeSweep) -> None:
    """The page has no URL. Its pictures are data URIs, and its script is named by its digest."""
    results = sweep()
    page = built(results)
    (script,) = re.findall(r"<script>(.*?)</script>", page.source, re.DOTALL)
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html.unescape(page.source)
    assert all(link.startswith("data:") for link in page.links)
    assert not re.search(r"url\(|@import|https?://", page.source)
    assert len(page.pictures) == 2
    assert [path.name for path in (results.folder / "report").iterdir()] == ["index.html"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"points": ()}, "No trial was started"),
        ({"statuses": dict.fromkeys(range(7), "FAILED")}, "so there is no winner"),
        ({"statuses": dict.fromkeys(range(7), "PRUNED")}, "so there is no winner"),
        ({"statuses": dict.fromkeys(range(7), "RUNNING")}, "7 running"),
        ({"points": ({"method.temperature": 0.1},)}, "No other configuration"),
        ({"points": ({},), "search": {}}, "trial-0000 won with val/accuracy"),
        ({"with_std": False}, "nothing can be said about how sure"),
        ({"tasks": ["kind"], "held_out": []}, "Tasks kind (4 classes) How to"),
        ({"statuses": {3: "INTERRUPTED"}}, "trial-0003 interrupted; no reason was recorded"),
    ],
)
def test_every_sweep_has_a_page(sweep: MakeSweep, options: dict[str, Any], words: str) -> None:
    """Sweeps without a winner, without a search space or with missing values have a page too."""
    assert words in built(sweep(**options)).text


@reads_words
def test_names_reasons_and_warnings_are_text_never_markup(sweep: MakeSweep) -> None:
    """They may contain HTML, mathematics and scripts without a glyph. Warnings stand above all."""
    tasks = [HTML_NAME, "price $\\frac{$", "色_{x}"]
    noise = "data.label_noise.price $\\frac{$"
    results = sweep(
        tasks=tasks,
        held_out=["<i>brand"],
        statuses={1: "FAILED"},
        reason=f"line 1\n{HTML_NAME}\udc80",
        points=[{noise: 0.1}, {noise: 0.2}],
        search={noise: {"choice": [0.1, 0.2]}},
    )
    warnings = ["16 images stand in train and test: <b>accuracies</b> will flatter", "1 is missing"]
    page = built(replace(results, plan=plan_with(warnings=warnings)), ui="mlflow <ui>")
    assert f"Warnings {' '.join(warnings)} Trials 2" in page.text
    assert page.tags.isdisjoint({"b", "i", "ui"})
    assert page.source.count("<script") == 1  # its own
    assert html.escape(HTML_NAME, quote=False).replace('"', "&#34;") in page.source
    assert "mlflow <ui>" in page.text


def test_each_searched_field_has_a_panel(sweep: MakeSweep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Categorical values are drawn side by side."""
    panels = Mock(wraps=plotting.panels)
    monkeypatch.setattr(plotting, "panels", panels)
    search = {
        "method.weighting": {"choice": ["learned", "equal"]},
        "train.lr": {"loguniform": [0.01, 1.0]},
        "train.epochs": {"int": [5, 20]},
    }
    points = [
        {"method.weighting": w, "train.lr": lr, "train.epochs": 20}
        for w in ("learned", "equal")
        for lr in (0.02, 0.1, 0.5)
    ]
    assert len(built(sweep(points=points, search=search)).pictures) == 2
    assert [call.args for call in panels.call_args_list] == [(3,), (1,)]


def test_values_that_look_alike_when_shortened_stand_apart(sweep: MakeSweep) -> None:
    points = [{"views.mean": [0.485, green, 0.406]} for green in (0.456, 0.5)]
    results = sweep(
        points=points, search={"views.mean": {"grid": [[*p["views.mean"]] for p in points]}}
    )
    with patch.object(Axes, "errorbar", autospec=True, side_effect=Axes.errorbar) as drawn:
        next(draw(results))
    assert sorted(x for call in drawn.call_args_list for x in call.args[1]) == [0, 1]


@reads_words
def test_a_curve_goes_on_after_an_epoch_without_a_finite_value(sweep: MakeSweep) -> None:
    results = sweep()
    reports = tuple((epoch, {OBJECTIVE: v}) for epoch, v in ((1, 0.5), (2, math.nan), (3, 0.6)))
    with patch("matplotlib.axes.Axes.plot") as plot:
        epochs_figure(replace(results, trials=(replace(results.trials[0], reports=reports),)))
    ((epochs, _),) = (call.args for call in plot.call_args_list)
    assert epochs[:2] == (1, 3)
    assert plot.call_args.kwargs["marker"] == ".", "a single epoch has no line"


def test_an_axis_of_a_single_epoch_has_a_whole_number() -> None:
    with plotting.styled():
        _, (axes,) = plotting.panels(1, height=2)
        axes.plot([1], [0.5])
        plotting.count_axis(axes)
        low, high = axes.get_xlim()
        assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]


def test_repeats_times_and_provenance_are_told(sweep: MakeSweep) -> None:
    """The headline has the configuration's mean, a table each mean and the winner's test scores."""
    results = sweep(points=({"method.temperature": 0.1}, {"method.temperature": 0.5}), repeats=3)
    start = Started(params={}, tags={"mtcon.git_commit": "3f9c2d1"})
    trials = tuple(replace(trial, seconds=60.0) for trial in results.trials)
    page = built(replace(results, trials=trials, events=(start,)))
    for words in (
        "(mean and deviation over 3 seeds)", "over the winner's seeds", "Time 6:00",
        "4 configurations x 3 seeds from 0", "git_commit 3f9c2d1",
    ):  # fmt: skip
        assert words in page.text


def test_trials_without_tasks_are_compared_by_rank(sweep: MakeSweep) -> None:
    results = sweep(tasks=["kind"])
    raw = dump_spec(results.spec)
    raw |= {"method": {"name": "simclr"}, "data": {**raw["data"], "tasks": [], "held_out": []}}
    ranks = ([(e, {"val/rankme": v["val/accuracy"]}) for e, v in t.reports] for t in results.trials)
    trials = tuple(replace(t, reports=tuple(r)) for t, r in zip(results.trials, ranks, strict=True))
    page = built(replace(results, spec=parse_recorded(raw), trials=trials))
    assert "won with val/rankme 0." in page.text
    assert "Without bootstrap deviations nothing can be said" in page.text
    assert "A trial's value is RankMe of its network" in page.text
    assert "±" not in page.text
