"""Verdicts of claims about two cells."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.reproduction.cells import Cell
from experiments.reproduction.experiment import Claim, Trained
from experiments.reproduction.judging import answer_at, comparable, hidden_colours, judge
from mtcon_ray.comparison.row import Row
from tests.experiments.pretended import all_trained, setting
from tests.some import some

GOOD, POOR = Cell("zappos50k", "mtcon"), Cell("zappos50k", "csn")
FAILED, UNTRAINED = Cell("zappos50k", "scenet"), Cell("zappos50k", "untrained")
SCORES = {GOOD: [0.8, 0.82, 0.81], POOR: [0.5, 0.51, 0.52], FAILED: [], UNTRAINED: [0.6] * 3}


def test_answers_and_the_differences_behind_them(tmp_path: Path) -> None:
    where = setting(tmp_path, "small")
    trained = all_trained(where, list(SCORES), SCORES)
    claims = [
        Claim(GOOD, POOR, "category", 10.0),
        Claim(POOR, GOOD, "closure", text="the worse one is better"),
        Claim(GOOD, POOR, "gender", margin=0.3),
        Claim(GOOD, FAILED, "brand"),
        Claim(GOOD, POOR, "brand", 10.0),
    ]
    first, second, third, last, held_out = judge(where, trained, claims)
    assert (held_out.answer, held_out.ours[:6]) == ("not comparable", "+30.00")
    assert (first.claim, first.answer) == ("MTCon, learned weights above CSN", "holds")
    note = "CSN is below the untrained encoder in category (shape)"
    assert (first.note, second.note) == (note, "")
    assert (first.paper, first.label) == ("+10.00 points", "category (shape)")
    assert first.ours.startswith("+30.00 [+")
    assert first.ours.endswith("] points")
    assert (first.p, last.p) == ("< 0.001", "")
    assert (second.claim, second.answer) == ("the worse one is better", "does not hold")
    assert third.claim == "MTCon, learned weights above CSN by 0.3"
    assert third.answer == "undecided"
    assert (last.answer, last.ours) == ("not testable here", "")
    assert last.why == "SCE-Net: diverged\nin step 3"


def test_views_that_change_colours_are_not_compared_by_a_colour(tmp_path: Path) -> None:
    where, strong = setting(tmp_path, "small"), Cell("zappos50k", "simclr")
    trained = all_trained(where, [GOOD], SCORES)
    columns = {"closure": "colour", "gender": "gender"}
    for choice, note in (("synthetic", ""), ("photos", "the views of SimCLR change colours")):
        source = replace(some(trained[GOOD].source), choice=choice, columns=columns)
        seen = {GOOD: replace(trained[GOOD], source=source)}
        assert hidden_colours(seen, Claim(GOOD, strong, "closure")) == note
        assert hidden_colours(seen, Claim(GOOD, strong, "gender")) == ""
        assert hidden_colours(seen, Claim(GOOD, POOR, "closure")) == ""
    assert comparable(where, "holds", is_held_out=False, has_views=False) == "not comparable"


@pytest.mark.parametrize(("more", "answer"), [(-0.1, "cannot be decided here"), (0.1, "undecided")])
def test_a_difference_too_small_to_detect(more: float, answer: str, tmp_path: Path) -> None:
    """In points above or below the detectable distance from the margin."""
    where, close = setting(tmp_path, "small"), {GOOD: [0.5, 0.52, 0.51], POOR: [0.51, 0.5, 0.52]}
    trained = all_trained(where, list(close), close)
    (found,) = judge(where, trained, [Claim(GOOD, POOR, "category", margin=0.01)])
    smallest = float(found.detectable.removesuffix(" points"))
    claim = Claim(GOOD, POOR, "category", 1 + smallest + more, margin=0.01)
    assert [each.answer for each in judge(where, trained, [claim])] == [answer]


def test_few_seeds_are_not_judged(tmp_path: Path) -> None:
    where = setting(tmp_path, "smoke")
    claims = [Claim(GOOD, POOR, "brand"), Claim(GOOD, FAILED, "brand")]
    shown, failed = judge(where, all_trained(where, list(SCORES), SCORES), claims)
    assert shown.answer == "not judged at this budget"
    assert shown.ours.startswith("+30.00 [")
    assert failed.answer == "not testable here"
    assert answer_at(setting(tmp_path, "small"), "undecided") == "undecided"


def test_a_claim_without_images_says_which_are_missing(tmp_path: Path) -> None:
    missing = {cell: Trained(cell, None, Row(cell.slug, None, "no images")) for cell in SCORES}
    claim = Claim(GOOD, POOR, "brand", 1.0)
    (verdict,) = judge(setting(tmp_path, "small", only="paper"), missing, [claim])
    assert (verdict.answer, verdict.label) == ("not testable here", "brand")
    assert verdict.why.endswith(": no images")
