"""Evaluation of a comparison's claims: paired difference, its interval, and a verdict."""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from mtcon_ray.comparison.row import Row, columns
from mtcon_ray.comparison.spec import ClaimSpec
from mtcon_ray.evaluation.intervals import Interval, difference, verdict
from mtcon_ray.presentation import interval_text


@dataclass(frozen=True)
class Judged:
    """A claim and the paired difference that decides it.

    `difference` is None if there is no measurement; `why` then has the reason.
    """

    claim: ClaimSpec
    heading: str  # the label's column heading
    difference: Interval | None
    why: str

    @property
    def verdict(self) -> str:
        """Returns "holds", "does not hold" or "undecided"."""
        return verdict(self.difference, self.claim.margin) if self.difference else "undecided"


def judged(rows: list[Row], claims: Iterable[ClaimSpec]) -> list[Judged]:
    """Evaluates the claims whose systems are both among the rows."""
    row_of = {row.title: row for row in rows}
    found = [c for c in claims if c.better in row_of and c.than in row_of]
    return [_judge(claim, row_of[claim.better], row_of[claim.than]) for claim in found]


def markdown(found: list[Judged]) -> str:
    """Returns a Markdown table of the claims; "" without claims."""
    if not found:
        return ""
    lines = ["| claim | label | difference | verdict |", "| --- | --- | ---: | --- |"]
    for each in found:
        claim, shown = each.claim, interval_text(each.difference, signed=True)
        by = f" by {claim.margin:g}" if claim.margin else ""
        verdict = f"{each.verdict}: {each.why}" if each.why else each.verdict
        names = f"{claim.better} above {claim.than}{by}".replace("|", "/")
        lines.append(f"| {names} | {each.heading} | {shown} | {verdict} |")
    return "\n".join(lines) + "\n"


def as_csv(found: list[Judged]) -> str:
    """Returns the claims as CSV; column `covers` names the sources of variation in the interval."""
    names = [*ClaimSpec.model_fields, "difference", "low", "high", "covers", "verdict", "why"]
    rows = []
    for each in found:
        claim, shown, covers = each.claim, each.difference, None
        if shown is not None:
            covers = "seeds and items" if shown.over_seeds else "items"
        numbers = shown[:3] if shown else (None, None, None)
        rows.append((*claim.model_dump().values(), *numbers, covers, each.verdict, each.why))
    return pd.DataFrame(rows, columns=names).to_csv(index=False)


def _judge(claim: ClaimSpec, better: Row, than: Row) -> Judged:
    headings = {label: text for (_, label), text in reversed(columns([better, than]).items())}
    heading = headings.get(claim.label, claim.label)
    scores = []
    for row in (better, than):
        if row.results is None or not row.finished:
            return Judged(claim, heading, None, f"{row.title} has no finished training")
        split = "test" if claim.label in row.results.spec.data.tasks else "heldout"
        scores.append(row.scores(split, claim.label))
    if scores[0] is None or scores[1] is None:
        return Judged(claim, heading, None, "no stored predictions")
    found = difference(scores[0], scores[1])
    return Judged(claim, heading, found, "" if found else "measured on different items")
