"""Verdicts of claims that compare the scores of two cells."""

from collections.abc import Mapping, Sequence
from typing import cast

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.experiment import Answer, Claim, Trained, Verdict
from mtcon_ray.comparison.claims import judged
from mtcon_ray.comparison.spec import ClaimSpec
from mtcon_ray.evaluation.intervals import Interval
from mtcon_ray.presentation import ONE_SEED, p_text


def answer_at(setting: Setting, answer: Answer) -> Answer:
    """Returns the answer, or that the budget is too small for one."""
    is_judged = setting.budget.judges or answer == "not testable here"
    return answer if is_judged else "not judged at this budget"


def judge(
    setting: Setting, trained: Mapping[Cell, Trained], claims: Sequence[Claim]
) -> list[Verdict]:
    """Returns the verdicts of claims, which are tested together: pass all claims of one table."""
    testable = [claim for claim in claims if _reason(trained, claim) == ""]
    rows = {cell: each.row for cell, each in trained.items() if each.finished}
    specs = [
        ClaimSpec(
            better=rows[claim.better].title,
            than=rows[claim.than].title,
            label=trained[claim.better].place(claim.label)[1],
            margin=claim.margin,
        )
        for claim in testable
    ]
    found = dict(zip(map(id, testable), judged(list(rows.values()), specs), strict=True))
    verdicts = []
    for claim in claims:
        answer: Answer = "not testable here"
        why, ours, p = _reason(trained, claim), "", ""
        if one := found.get(id(claim)):
            ours, why = points(one.difference), one.why
            p = "" if one.p_holm is None else p_text(one.p_holm)
            answer = cast(Answer, one.verdict) if one.difference else answer
        answer = answer_at(setting, answer)
        paper = "" if claim.paper is None else f"{claim.paper:+.2f} points"
        source = trained[claim.better].source
        label = source.name_label(claim.label) if source else claim.label
        verdicts.append(Verdict(str(claim), answer, paper, ours, why, label, p))
    return verdicts


def points(difference: Interval | None) -> str:
    """Returns a difference of fractions with its interval, in percentage points."""
    return "" if difference is None else f"{_scaled(difference, '+')} points"


def percent(interval: Interval | None) -> str:
    """Returns the interval of a fraction, in percent, without its middle."""
    return "" if interval is None else _scaled(interval, "").partition(" ")[2]


def _scaled(interval: Interval, sign: str) -> str:
    value, low, high = (f"{100 * number:{sign}.2f}" for number in interval[:3])
    return f"{value} [{low}, {high}]{'' if interval.over_seeds else ONE_SEED}"


def _reason(trained: Mapping[Cell, Trained], claim: Claim) -> str:
    """Returns the reason why a claim cannot be tested, "" without one."""
    for cell in (claim.better, claim.than):
        if not trained[cell].finished:
            return f"{cell.title}: {trained[cell].row.why}"
    return ""
