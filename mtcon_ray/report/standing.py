"""Who won, by how much, and how far that can be trusted: numbers only, no layout."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from mtcon_ray import metrics
from mtcon_ray.evaluation.intervals import Scores, resampled_scores
from mtcon_ray.evaluation.predictions import load_predictions
from mtcon_ray.evaluation.spec import CONVERGED
from mtcon_ray.results import SweepResults, TrialResult

# Between two configurations that are equally good, one lead in three exceeds one bootstrap
# deviation of the difference, one in twenty exceeds two.
TOLD_APART = 2.0


@dataclass(frozen=True)
class Configuration:
    """One set of searched values, and its trials that had their full budget, best first."""

    params: dict[str, Any]
    trials: tuple[TrialResult, ...]

    @property
    def value(self) -> float:
        """Mean validation score over the configuration's seeds."""
        return fmean(t.value for t in self.trials if t.value is not None)

    @property
    def spread(self) -> float | None:
        """Standard deviation over seeds, None with one."""
        values = [t.value for t in self.trials if t.value is not None]
        return stdev(values) if len(values) > 1 else None


@dataclass(frozen=True)
class Margin:
    """The winner's lead over the best other configuration."""

    winner: Configuration
    runner_up: Configuration
    gap: float
    deviations: float | None  # the gap in bootstrap deviations of that difference
    num_configurations: int  # that have a value, with their full budget or stopped early


def probe_values(trial: TrialResult) -> dict[str, float]:
    """The metrics of the probe that gave a trial its value, empty without one."""
    return dict(trial.reports).get(trial.model_epoch or 0, {}) if trial.value is not None else {}


def resampled(
    results: SweepResults, trials: Sequence[TrialResult]
) -> dict[tuple[str, str], Scores]:
    """Returns the trials' test scores by split and slug of the label, to make intervals from.

    The trials are one configuration's, one per seed. Labels of which a trial has no stored
    predictions, as those of earlier versions, are left out.
    """
    stored = {t.seed: load_predictions(results.predictions_of(t)) for t in trials}
    by_seed = {seed: found.labels for seed, found in stored.items() if found is not None}
    if not trials or len(by_seed) < len(trials):
        return {}
    places = set.intersection(*(set(labels) for labels in by_seed.values()))
    scores = {
        place: resampled_scores({seed: labels[place] for seed, labels in by_seed.items()})
        for place in sorted(places)
    }
    return {place: found for place, found in scores.items() if found is not None}


def probe_warnings(values: Mapping[str, float]) -> list[str]:
    """Returns a sentence if the probes behind these metrics have not converged, else nothing."""
    gradient = values.get(metrics.PROBE_GRADIENT, 0.0)
    if gradient <= CONVERGED:
        return []
    shown = f"{gradient:.0e}".replace("e-0", "e-")
    return [
        f"the probes have not converged (gradient {shown} of its start); accuracies may be too low"
    ]


def deviation(trial: TrialResult, tasks: tuple[str, ...]) -> float | None:
    """Bootstrap deviation of a trial's mean over tasks, None where a task's own is missing.

    As if the tasks' errors were independent: they are measured on the same items, so the true
    one lies between this and sqrt(num tasks) times this.
    """
    values = probe_values(trial)
    found = [metrics.reading(values, "val", metrics.slug(t)).std for t in tasks]
    each = [math.nan if std is None else std for std in found]
    whole = math.hypot(*each) / len(each)
    return whole if math.isfinite(whole) else None


def configurations(results: SweepResults) -> list[Configuration]:
    """Configurations with a full-budget trial: the winner's, the complete ones, then the others."""
    seeds: dict[str, list[TrialResult]] = {}
    for trial in results.ranked():
        if trial.full_budget:
            seeds.setdefault(trial.configuration, []).append(trial)
    found = [Configuration(trials[0].params, tuple(trials)) for trials in seeds.values()]
    winner, repeats = results.winner, results.spec.search.repeats
    return sorted(found, key=lambda c: (winner not in c.trials, len(c.trials) < repeats, -c.value))


def margin(results: SweepResults) -> Margin | None:
    """The winner's lead, None without a winner or without another configuration."""
    best = configurations(results)[:2]
    if len(best) < 2:
        return None
    gap = best[0].value - best[1].value
    each = [_mean_deviation(c, results.spec.data.tasks) for c in best]
    unit = math.hypot(*each)
    usable = math.isfinite(unit) and unit > 0
    competing = {t.configuration for t in results.trials if t.value is not None}
    return Margin(best[0], best[1], gap, gap / unit if usable else None, len(competing))


def _mean_deviation(configuration: Configuration, tasks: tuple[str, ...]) -> float:
    # Seeds are probed on much the same items: averaging over them does not shrink this part.
    each = [deviation(t, tasks) for t in configuration.trials]
    return fmean(math.nan if d is None else d for d in each)


def verdict(margin: Margin) -> str:
    """Returns what the lead is worth, in words."""
    if margin.gap < 0:
        return "The runner-up lost seeds to early stopping or failure, which flatters its mean."
    chosen = f"the best of {margin.num_configurations} configurations looks better than it is"
    if margin.deviations is None:
        return "Without bootstrap deviations nothing can be said about how sure that lead is."
    if margin.deviations < TOLD_APART:
        return (
            "This measurement cannot tell the two apart: the lead is below two bootstrap "
            f"deviations, and {chosen}. {_other_seeds(margin)}"
        )
    return f"A lead on these validation images, but {chosen}. {_other_seeds(margin)}"


def _other_seeds(margin: Margin) -> str:
    """Returns what the bootstrap deviations leave out: the seeds of the training."""
    fewest = min(len(c.trials) for c in (margin.winner, margin.runner_up))
    if fewest > 1:
        return "The deviations count other images; how far seeds differ stands under Repeats."
    return "One seed is one seed: search.repeats trains each configuration with several."
