"""Evaluation of a comparison's claims: paired difference, its interval, p, and a verdict.

Each claim is tested against its margin alone, the minimum effect. No second test against zero is
needed. A difference above a margin is above zero. A difference above zero does not decide the
claim if it is not shown to be above the margin.
"""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from mtcon_ray.base.metrics import Kind
from mtcon_ray.comparison.comparison_spec import ClaimSpec
from mtcon_ray.comparison.row import Row
from mtcon_ray.display.presentation import NOTHING, csv_text, interval_text, p_text
from mtcon_ray.display.tables import Table
from mtcon_ray.evaluation import intervals
from mtcon_ray.evaluation.predictions import kind_of
from mtcon_ray.spec.evaluate import SGDProbeSpec

# Minimum for each seed-dependent system. Two seeds hardly show how far seeds differ.
MIN_SEEDS = 3
# Deviations of a paired difference over test items, and of a training over seeds. Measured on the
# 400 trainings of docs/results/reproduction.md: 12 epochs of a small encoder on photographs.
ITEM_DEVIATION, SEED_DEVIATION = 0.35, 0.007


@dataclass(eq=False)
class Judged:
    """A claim and its deciding paired difference.

    `difference` is None without a measurement. `p` and the `scores` of both systems are None if the
    claim is not tested, and `why` then has the reason. `p_holm` is p corrected for all claims
    tested together. `detectable` is the difference from the margin found by this test with 80 %
    power.
    """

    claim: ClaimSpec
    difference: intervals.Interval | None
    why: str = ""
    p: float | None = None
    p_holm: float | None = None
    detectable: float | None = None
    scores: tuple[intervals.Scores, intervals.Scores] | None = None

    @property
    def verdict(self) -> str:
        """Returns "holds", "does not hold" or "undecided"."""
        if self.difference is None or self.p_holm is None:
            return "undecided"
        return intervals.judge(self.difference, self.p_holm, self.claim.margin)


def judged(rows: list[Row], claims: Iterable[ClaimSpec]) -> list[Judged]:
    """Evaluates the claims with both systems among the rows. Pass all claims of a table.

    Holm's correction counts the testable claims. For each claim the variance over seeds is at least
    the mean of this variance over all claims on labels of the same kind.
    """
    row_of = {row.title: row for row in rows}
    found = [c for c in claims if c.better in row_of and c.than in row_of]
    measured = [_measure(claim, row_of[claim.better], row_of[claim.than]) for claim in found]
    tested = [(e, e.difference, e.scores) for e in measured if e.difference and e.scores]
    least = _seed_variances(measured)
    for each, difference, both in tested:
        error = intervals.standard_error(*both, least.get(kind_of(both[0].truth)))
        each.p = intervals.p_value(difference.value - each.claim.margin, error)
        each.detectable = intervals.detectable(error, len(tested))
    corrected = intervals.holm([each.p for each, *_ in tested if each.p is not None])
    for (each, *_), p in zip(tested, corrected, strict=True):
        each.p_holm = p
    return measured


def planned(
    num_items: int, num_seeds: int, num_systems: int, num_pairs: int, num_claims: int
) -> float:
    """Returns the difference of accuracies, a fraction, that claims will probably detect.

    With 80 % power after Holm's correction, as `detectable`, if systems vary like the systems
    behind ITEM_DEVIATION and SEED_DEVIATION.
    """
    of_seeds = 2 * SEED_DEVIATION**2 / num_seeds
    of_items = intervals.Estimate(ITEM_DEVIATION**2 / num_items, num_items - 1)
    seeds = intervals.Estimate(of_seeds, min(num_systems, num_pairs) * (num_seeds - 1))
    variance, freedom = intervals.summed(of_items, seeds)
    return intervals.detectable(intervals.Estimate(math.sqrt(variance), freedom), num_claims)


def too_few_seeds(num_seeds: int) -> str:
    """Returns why a claim cannot be decided with so few seeds, "" if they are enough."""
    if num_seeds >= MIN_SEEDS:
        return ""
    return f"{num_seeds} seed{'s' * (num_seeds > 1)}, at least {MIN_SEEDS} are needed"


def table(found: list[Judged]) -> Table:
    """Returns the claims with their verdicts as a table."""
    rows = []
    for each in found:
        claim, shown = each.claim, interval_text(each.difference, signed=True)
        by = f" by {claim.margin:g}" if claim.margin else ""
        verdict = f"{each.verdict}: {each.why}" if each.why else each.verdict
        names = f"{claim.better} above {claim.than}{by}"
        smallest = NOTHING if each.detectable is None else f"{each.detectable:.3f}"
        rows.append([names, claim.label, shown, smallest, p_text(each.p_holm), verdict])
    header = ["claim", "label", "difference", "detectable", "p (Holm)", "verdict"]
    return Table(header, rows, right=(2, 3, 4))


def as_csv(found: list[Judged]) -> str:
    """Returns the claims as CSV. Columns up to `over_seeds` are of the paired difference."""
    measured = ("difference", "low", "high", "over_seeds", "detectable", "p", "p_holm")
    names = [*ClaimSpec.model_fields, *measured, "verdict", "why"]
    rows = []
    for each in found:
        found_by = *(each.difference or (None,) * 4), each.detectable, each.p, each.p_holm
        rows.append((*each.claim.model_dump().values(), *found_by, each.verdict, each.why))
    return csv_text(pd.DataFrame(rows, columns=names))


def _measure(claim: ClaimSpec, better: Row, than: Row) -> Judged:
    scores, varying = [], []
    for row in (better, than):
        if row.results is None or not row.finished:
            return Judged(claim, None, f"{row.title} has no finished training")
        spec = row.results.spec
        found = row.scores("test" if claim.label in spec.data.tasks else "heldout", claim.label)
        is_random = spec.model.encoder.is_random or isinstance(spec.evaluate.probe, SGDProbeSpec)
        if spec.method.trains or is_random or spec.model.embedding_dim:
            varying.append(len(row.finished))
        elif found is not None:
            # Fixed features. Their equal results would count as a system with little variation.
            first = found.score_S[:1], found.drawn_SK[:1]
            found = found._replace(seeds=found.seeds[:1], score_S=first[0], drawn_SK=first[1])
        scores.append(found)
    if scores[0] is None or scores[1] is None:
        return Judged(claim, None, "no stored predictions")
    if (gap := intervals.difference(scores[0], scores[1])) is None:
        return Judged(claim, None, "measured on different items")
    # Fixed features have a single result. No other seed is missing in the interval, or needed.
    fewest = min(varying, default=0)
    gap = gap._replace(over_seeds=fewest > 1)
    if scores[0].groups is not None and len(np.unique(scores[0].groups)) == 1:
        return Judged(claim, gap, "a single group of test items")
    if varying and (why := too_few_seeds(fewest)):
        return Judged(claim, gap, why)
    return Judged(claim, gap, scores=(scores[0], scores[1]))


def _seed_variances(measured: list[Judged]) -> dict[Kind, intervals.Estimate]:
    """Returns the variance of a training over seeds in the tested claims, by kind of label.

    It is the mean of the claims. Scores of different kinds have different scales. The degrees of
    freedom are those of the systems, or of the pairs of systems if these have fewer. Their seeds
    count once in any number of claims.
    """
    found = defaultdict[Kind, list[float]](list)
    systems, pairs = (defaultdict[Kind, dict[Any, int]](dict) for _ in range(2))
    for each in measured:
        if each.scores and (variance := intervals.seed_variance(*each.scores)):
            kind, titles = kind_of(each.scores[0].truth), (each.claim.better, each.claim.than)
            found[kind].append(variance.value)
            own = {t: len(s.seeds) - 1 for t, s in zip(titles, each.scores, strict=True)}
            varying = {title: freedom for title, freedom in own.items() if freedom}
            systems[kind] |= varying
            pairs[kind][frozenset(titles)] = min(varying.values())
    freedom = {k: min(sum(systems[k].values()), sum(pairs[k].values())) for k in found}
    return {kind: intervals.Estimate(fmean(v), freedom[kind]) for kind, v in found.items()}
