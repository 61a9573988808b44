"""Verdicts of claims about the scores of two cells."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from experiments.reproduction.cells import Cell, Setting
from experiments.reproduction.experiment import Answer, Claim, Trained, Verdict
from mtcon_ray.comparison.claims import judged
from mtcon_ray.comparison.comparison_spec import ClaimSpec
from mtcon_ray.display.presentation import ONE_SEED, p_text
from mtcon_ray.evaluation.intervals import Interval

UNTRAINED = Cell("", "untrained")


def answer_at(setting: Setting, answer: Answer) -> Answer:
    """Returns the answer, or a note on the too small budget."""
    is_judged = setting.budget.judges or answer == "not testable here"
    return answer if is_judged else "not judged at this budget"


def powered(answer: Answer, smallest: float | None, printed: float | None) -> Answer:
    """Returns the answer, or a note on too little power for the paper's printed difference.

    `smallest` is the detectable difference, and `printed` the paper's difference from the margin,
    both as fractions.
    """
    if answer != "undecided" or smallest is None or printed is None:
        return answer
    return "cannot be decided here" if abs(printed) < smallest else answer


def comparable(
    setting: Setting,
    answer: Answer,
    *,
    is_held_out: bool,
    has_classes: bool = True,
    has_views: bool = True,
) -> Answer:
    """Returns the answer, or a note if other networks, labels or views may explain it.

    The papers' claims about held-out labels concern networks started from ImageNet. They ask how
    much of ImageNet's features training keeps, which a random start cannot answer. Learned weights
    are about the inverse of a task's loss, which grows with the number of its classes. `has_views`
    is False if the views of one system alone hide the label.
    """
    is_decided = answer in ("holds", "does not hold", "undecided", "cannot be decided here")
    is_asked = has_classes and has_views and (setting.budget.is_pretrained or not is_held_out)
    return answer if is_asked or not is_decided else "not comparable"


def below_untrained(trained: Mapping[Cell, Trained], claim: Claim) -> str:
    """Returns a note if the worse system's mean is below the untrained encoder's, else ""."""
    untrained = trained.get(replace(UNTRAINED, data=claim.than.data, own_data=claim.than.own_data))
    ours = trained[claim.than].reading(claim.label).value
    least = untrained.reading(claim.label).value if untrained else None
    if ours is None or least is None or ours >= least:
        return ""
    name = trained[claim.than].name_label(claim.label)
    return f"{claim.than.title} is below the untrained encoder in {name}"


def hidden_colours(trained: Mapping[Cell, Trained], claim: Claim) -> str:
    """Returns a note if the label is a colour, and only one system's views keep it, else ""."""
    source, systems = trained[claim.better].source, (claim.better, claim.than)
    strong = [cell for cell in systems if cell.is_self_supervised]
    if source is None or source.choice != "photos" or len(strong) != 1:
        return ""
    has_colours = source.columns[claim.label] == "colour"
    return f"the views of {strong[0].title} change colours" if has_colours else ""


def judge(
    setting: Setting, trained: Mapping[Cell, Trained], claims: Sequence[Claim]
) -> list[Verdict]:
    """Returns the verdicts of claims tested together: pass all claims of a table."""
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
        why, ours, p, smallest = _reason(trained, claim), "", "", None
        if one := found.get(id(claim)):
            ours, why, smallest = points(one.difference), one.why, one.detectable
            p = "" if one.p_holm is None else p_text(one.p_holm)
            answer = cast(Answer, one.verdict) if one.difference else answer
        source = trained[claim.better].source
        printed = None if claim.paper is None else claim.paper / 100 - claim.margin
        answer = comparable(
            setting,
            powered(answer, smallest, printed),
            is_held_out=claim.label in claim.better.held_out_labels,
            has_views=not (hidden := hidden_colours(trained, claim)),
        )
        verdicts.append(
            Verdict(
                str(claim),
                answer_at(setting, answer),
                "" if claim.paper is None else f"{claim.paper:+.2f} points",
                ours,
                why,
                source.name_label(claim.label) if source else claim.label,
                p,
                in_points(smallest),
                note="; ".join(filter(None, [below_untrained(trained, claim), hidden])),
            )
        )
    return verdicts


def in_points(smallest: float | None) -> str:
    """Returns a detectable difference of fractions, in percentage points."""
    return "" if smallest is None else f"{100 * smallest:.2f} points"


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
