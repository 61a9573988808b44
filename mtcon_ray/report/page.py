"""Content of the report page as plain text for the template."""

from collections.abc import Iterable
from statistics import fmean, stdev
from typing import Any

from mtcon_ray import metrics
from mtcon_ray.evaluation.intervals import difference, mean_interval
from mtcon_ray.presentation import (
    accuracy_text,
    configuration_text,
    duration_text,
    interval_text,
    label_scores,
    limits_text,
    network_text,
    training_warnings,
    value_note,
    value_text,
    value_word,
)
from mtcon_ray.report.ranking import deviation, margin, resampled, verdict
from mtcon_ray.results import SweepResults
from mtcon_ray.status import Status
from mtcon_ray.tracking.events import Event, Started


def headline(results: SweepResults) -> tuple[str, str]:
    """Returns a sentence about the winner and its lead, and sentences that rate the lead."""
    winner = results.winner
    if winner is None:
        return (
            "No trial finished with its full budget, so there is no winner.",
            f"{_counted(results)}.{' The reasons are given below.' if failures(results) else ''}",
        )
    best = results.configurations()[0]
    who = configuration_text(winner.params) if winner.params else winner.name
    seeds = len(best.trials)
    if best.spread is None:
        value = accuracy_text(winner.value, deviation(winner, results.recorded.labels))
    else:
        value = f"{accuracy_text(best.value, best.spread)} (mean and deviation over {seeds} seeds)"
    labels = results.recorded.labels
    what = value_word(labels, "validation")
    start = f"{who} won with a {what} of {value}{value_note(labels)}"
    network = f"The winner is {winner.name}, {network_text(winner)}."
    lead = margin(results)
    if lead is None:
        start = start.replace(" won with ", " reached ", 1) if not winner.params else start
        alone = "No other configuration had its full budget to compare it with."
        return f"{start}.", f"{alone} {network}"
    second = configuration_text(lead.runner_up.params)
    times = f" ({lead.deviations:.1f} bootstrap deviations)" if lead.deviations is not None else ""
    side = "above" if lead.gap >= 0 else "below"
    sentence = f"{start}, {abs(lead.gap):.3f}{times} {side} the runner-up, {second}."
    return sentence, f"{verdict(lead)} {network}"


def facts(results: SweepResults, seconds: float | None) -> list[tuple[str, str, str]]:
    """Returns name, value and explanation of each key fact.

    `seconds` is the duration of the sweep; None omits that fact.
    """
    trials = results.trials
    trained = sum(t.last_epoch for t in trials)
    ended = [t for t in trials if t.status in (Status.PRUNED, Status.FINISHED)]
    saved = sum(t.epochs - t.last_epoch for t in ended)
    share = saved / (trained + saved) if trained + saved else 0.0
    found = [
        ("Trials", str(len(trials)), _counted(results)),
        ("Epochs trained", f"{trained:,}", "over all trials"),
        ("Epochs saved", f"{saved:,}", f"{share:.0%} of the budget, by early stopping"),
    ]
    if seconds is not None:
        found.append(("Time", duration_text(seconds), "first to last record, pauses left out"))
    return found


def setup(results: SweepResults) -> list[tuple[str, str]]:
    """Returns name and value of each setting: method, data, tasks, search space, sampler, seed."""
    spec = results.recorded
    space = [
        f"{path}: {d.kind} {', '.join(map(value_text, d.extremes))}"
        for path, d in spec.search.space.items()
    ]
    num_items = results.plan.num_items if results.plan else {}
    items = ", ".join(f"{n:,} {split}" for split, n in num_items.items())
    return [
        ("Method", f"{spec.method.name} on {spec.model.encoder.name}"),
        ("Data", f"{spec.data.kind}{f': {items} images' if items else ''}"),
        ("Tasks", ", ".join(spec.labels.tasks) or "none"),
        ("Held out", ", ".join(spec.labels.held_out) or "none"),
        *([("Objective", spec.labels.objective_title)] if spec.labels.weights else []),
        ("Searched", "; ".join(space) or "nothing"),
        ("Sampler", f"{spec.search.sampler}; early stopping: {spec.scheduler}"),
        *([("Starts from", ", ".join(earlier))] if (earlier := spec.search.start_from) else []),
        *([("Limits", limits)] if (limits := limits_text(spec.search)) else []),
        ("Seed", str(spec.seed) + _repeats(spec.search.repeats, spec.seed)),
    ]


def leaderboard(results: SweepResults) -> list[dict[str, Any]]:
    """Returns a table row for each trial, best first."""
    labels = results.recorded.labels
    slugs = list(metrics.slugs(labels.tasks).values())
    return [
        {
            "trial": trial,
            "winner": trial is results.winner,
            "params": [value_text(trial.params.get(p)) for p in results.recorded.search.space],
            "value": accuracy_text(trial.value, deviation(trial, labels)),
            "tasks": [accuracy_text(*metrics.reading(trial.probe_values, "val", s)) for s in slugs],
            "status": trial.status.words,
            "reason": trial.reason or "",
        }
        for trial in results.ranked()
    ]


def accuracies(results: SweepResults) -> list[dict[str, Any]]:
    """Returns a row for each label of the winner: classes, floors, score, mean over seeds, lead.

    The mean has a 95 % interval over seeds and items if predictions are stored, else the standard
    deviation over seeds. The lead is the paired difference from the runner-up's mean; it is "" if
    either has no stored predictions. The floors are the accuracies of guesses without the image: a
    uniform guess ("chance") and the most frequent class ("baseline"). Label sets are scored by
    mean average precision instead of accuracy, numbers by R^2.
    """
    winner = results.winner
    if winner is None:
        return []
    best, *others = results.configurations()
    first = resampled(results, best.trials)
    second = resampled(results, others[0].trials) if others else {}
    rows, names = [], results.recorded.labels.slugs
    for row in label_scores(results.recorded.labels, results.plan, winner.last_metrics):
        place = row.split, names[row.label]
        if place in first:
            seeds = interval_text(mean_interval(first[place]))
        else:
            seeds = _mean_text(metrics.reading(t.last_metrics, *place).value for t in best.trials)
        has_lead = place in first and place in second
        lead = difference(first[place], second[place]) if has_lead else None
        rows.append(
            {
                **row._asdict(),
                "accuracy": accuracy_text(*row.score),
                "seeds": seeds,
                "lead": interval_text(lead, signed=True) if lead else "",
            }
        )
    return rows


def warnings(results: SweepResults) -> list[str]:
    """Returns those of the plan, about the data, and of the winner's probes."""
    of_winner = training_warnings(results.winner.last_metrics) if results.winner else []
    return [*results.lost, *results.plan_warnings, *of_winner]


def repeats(results: SweepResults) -> list[dict[str, Any]]:
    """Returns a row for each configuration: mean and standard deviation over its seeds."""
    slugs = list(metrics.slugs(results.recorded.labels.tasks).values())
    space = results.recorded.search.space  # in the order of the table's head
    return [
        {
            "params": [value_text(configuration.params.get(p)) for p in space],
            "seeds": str(len(configuration.trials)),
            "value": accuracy_text(configuration.value, configuration.spread),
            "tasks": [
                _mean_text(
                    metrics.reading(t.probe_values, "val", s).value for t in configuration.trials
                )
                for s in slugs
            ],
        }
        for configuration in results.configurations()
    ]


def failures(results: SweepResults) -> list[tuple[str, str]]:
    """Returns the names of the failed or interrupted trials of each reason, and the full reason."""
    by_reason: dict[str, list[str]] = {}
    for trial in results.trials:
        if trial.status in (Status.FAILED, Status.INTERRUPTED):
            reason = trial.reason or f"{trial.status.words}; no reason was recorded"
            by_reason.setdefault(reason, []).append(trial.name)
    return [(", ".join(names), reason) for reason, names in by_reason.items()]


def provenance(events: list[Event]) -> list[tuple[str, str]]:
    """Returns name and value of each provenance tag of the sweep's first start, sorted by name."""
    tags = events[0].tags if events and isinstance(events[0], Started) else {}
    return [(name.removeprefix("mtcon."), value) for name, value in sorted(tags.items())]


def _mean_text(values: Iterable[float | None]) -> str:
    """Returns the mean and standard deviation of the values that are not None."""
    found = [value for value in values if value is not None]
    mean = fmean(found) if found else None
    return accuracy_text(mean, stdev(found) if len(found) > 1 else None)


def _counted(results: SweepResults) -> str:
    order = (Status.FINISHED, Status.PRUNED, Status.FAILED, Status.INTERRUPTED, Status.RUNNING)
    counts = {s: sum(t.status == s for t in results.trials) for s in order}
    return ", ".join(f"{n} {s.words}" for s, n in counts.items() if n or s.is_final)


def _repeats(count: int, seed: int) -> str:
    return f" to {seed + count - 1}, each configuration {count} times" if count > 1 else ""
