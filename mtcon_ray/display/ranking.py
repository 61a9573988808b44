"""Ranking of a sweep, without layout: the winner, its lead, and the uncertainty of the lead."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

from mtcon_ray.base import metrics
from mtcon_ray.evaluation.intervals import Scores, resampled_scores
from mtcon_ray.evaluation.predictions import load_predictions
from mtcon_ray.records.results import Configuration, SweepResults, TrialResult

# In bootstrap deviations of the difference. Between two equally good configurations a third of the
# leads exceeds one deviation, and a twentieth exceeds two.
TOLD_APART = 2.0


class Margin(NamedTuple):
    """The winner's lead over the best other configuration, a fraction."""

    runner_up: Configuration
    gap: float
    deviations: float | None  # the gap in bootstrap deviations of the difference
    num_configurations: int  # configurations with a value, including early-stopped trials


def resampled(sweep: SweepResults, trials: Sequence[TrialResult]) -> dict[tuple[str, str], Scores]:
    """Returns resampled test scores by (split, slug of the label), as input of intervals.

    The trials must belong to a single configuration, with a trial per seed. Labels are omitted if a
    trial has no stored predictions for them.
    """
    stored = {t.seed: load_predictions(sweep.predictions_of(t)) for t in trials}
    by_seed = {seed: found for seed, found in stored.items() if found is not None}
    if not trials or len(by_seed) < len(trials):
        return {}
    places = set.intersection(*(set(labels) for labels in by_seed.values()))
    scores = {
        place: resampled_scores({seed: labels[place] for seed, labels in by_seed.items()})
        for place in sorted(places)
    }
    return {place: found for place, found in scores.items() if found is not None}


def deviation(trial: TrialResult, labels: metrics.Labels) -> float:
    """Returns the bootstrap deviation of a trial's value, NaN if a score's deviation is missing.

    Only scores of probes have deviations. Returns NaN without tasks, too.

    Treats the errors of the tasks as independent. They are measured on the same items and may be
    correlated, so the true deviation can be up to sqrt(num tasks) times as large.
    """
    parts, names = [], labels.slugs
    for (metric, task), share in labels.shares.items():
        found = metrics.reading(trial.probe_values, "val", names[task])
        std = found.std if metric == metrics.SCORE else None
        parts.append(math.nan if std is None else share * std)
    return math.hypot(*parts) if parts else math.nan


def margin(results: SweepResults) -> Margin | None:
    """Returns the winner's lead, None with fewer than two full-budget configurations."""
    best = results.configurations()[:2]
    if len(best) < 2:
        return None
    gap = best[0].value - best[1].value
    # All seeds are probed on mostly the same validation items, so averaging over seeds does not
    # reduce the error from the choice of items.
    unit = math.hypot(*(fmean(deviation(t, results.labels) for t in c.trials) for c in best))
    usable = math.isfinite(unit) and unit > 0
    competing = {t.configuration for t in results.trials if t.value is not None}
    return Margin(best[1], gap, gap / unit if usable else None, len(competing))


def verdict(margin: Margin) -> str:
    """Returns sentences that compare the lead with the measurement's uncertainty."""
    if margin.gap < 0:
        return "The runner-up lost seeds to early stopping or failure, which flatters its mean."
    if margin.deviations is None:
        return "Without bootstrap deviations nothing can be said about how sure that lead is."
    chosen = f"the best of {margin.num_configurations} configurations looks better than it is"
    if margin.deviations < TOLD_APART:
        lead = "the lead is below two bootstrap deviations"
        return f"This measurement cannot tell the two apart: {lead}, and {chosen}."
    return f"A lead on these validation images, but {chosen}."
