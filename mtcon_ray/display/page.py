"""Content of the report page as plain text for the template."""

from collections.abc import Iterable
from statistics import fmean, stdev

from mtcon_ray.base import metrics
from mtcon_ray.base.status import Status
from mtcon_ray.display.presentation import (
    NOTHING,
    accuracy_text,
    configuration_text,
    duration_text,
    interval_text,
    label_scores,
    label_title,
    limits_text,
    network_text,
    score_word,
    training_warnings,
    value_note,
    value_text,
    value_word,
)
from mtcon_ray.display.ranking import deviation, margin, resampled, verdict
from mtcon_ray.display.tables import Table
from mtcon_ray.evaluation.intervals import difference, mean_interval
from mtcon_ray.records.events import Event, Started
from mtcon_ray.records.results import SweepResults


def upper(text: str) -> str:
    """Returns the text with an upper-case first letter."""
    return text[:1].upper() + text[1:]


def headline(results: SweepResults) -> tuple[str, str]:
    """Returns a sentence about the winner and its lead, and sentences to rate the lead."""
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
        value = accuracy_text(winner.value, deviation(winner, results.labels))
    else:
        value = f"{accuracy_text(best.value, best.spread)} (mean and deviation over {seeds} seeds)"
    labels = results.labels
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

    `seconds` is the duration of the sweep. None omits this fact.
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
    spec, labels = results.spec, results.labels
    space = [
        f"{path}: {d.kind} {', '.join(map(value_text, d.extremes))}"
        for path, d in spec.search.space.items()
    ]
    num_items = results.plan.num_items if results.plan else {}
    items = ", ".join(f"{n:,} {split}" for split, n in num_items.items())
    return [
        ("Method", f"{spec.method.name} on {spec.model.encoder.name}"),
        ("Data", f"{spec.data.kind}{f': {items} images' if items else ''}"),
        ("Tasks", ", ".join(labels.tasks) or "none"),
        ("Held out", ", ".join(labels.held_out) or "none"),
        *([("Objective", labels.objective_title)] if labels.weights else []),
        ("Searched", "; ".join(space) or "nothing"),
        ("Sampler", f"{spec.search.sampler}; early stopping: {spec.scheduler.name}"),
        *([("Starts from", ", ".join(earlier))] if (earlier := spec.search.start_from) else []),
        *([("Limits", limits)] if (limits := limits_text(spec.search)) else []),
        ("Seed", str(spec.seed) + _repeats(spec.search.repeats, spec.seed)),
    ]


def leaderboard(results: SweepResults) -> Table:
    """Returns the trials, best first, with the validation score of each task."""
    labels, space = results.labels, results.spec.search.space
    slugs, several = metrics.slugs(labels.tasks).values(), results.spec.search.repeats > 1
    ranked = results.ranked()
    rows = [
        [
            str(place),
            trial.name,
            *(value_text(trial.params.get(path)) for path in space),
            *([str(trial.seed)] * several),
            accuracy_text(trial.value, deviation(trial, labels)),
            f"{trial.last_epoch} of {trial.epochs}",
            "winner" if trial is results.winner else trial.status.words,
            *(accuracy_text(*metrics.reading(trial.probe_values, "val", s)) for s in slugs),
        ]
        for place, trial in enumerate(ranked, 1)
    ]
    header = ["#", "Trial", *space, *(["Seed"] * several), upper(value_word(labels)), "Epochs"]
    header += ["Status", *(label_title(labels, task) for task in labels.tasks)]
    right = set(range(len(header))) - {1, header.index("Status", 2 + len(space))}
    best = ranked.index(results.winner) if results.winner else None
    return Table(header, rows, right, best)


def accuracies(results: SweepResults) -> Table:
    """Returns a row for each label of the winner: classes, floors, score, mean over seeds, lead.

    With repeats the mean has a 95 % interval over seeds and items if predictions are stored, else
    the standard deviation over seeds. The lead is the paired difference from the runner-up's mean.
    Its column is omitted if no label has stored predictions of both. The floors are the accuracies
    of guesses without the image: a uniform guess ("chance") and the most frequent class
    ("baseline"). Label sets are scored by mean average precision instead of accuracy, numbers by
    R^2.
    """
    labels, several = results.labels, results.spec.search.repeats > 1
    best = results.configurations()[:2]
    stored = [resampled(results, each.trials) for each in best]
    first = stored[0] if stored else {}
    second = stored[1] if len(stored) > 1 else {}
    rows, leads = [], []
    scores = results.winner.last_metrics if results.winner else {}
    for row in label_scores(labels, results.plan, scores):
        place = row.split, labels.slugs[row.label]
        cells = [row.title, row.role, row.classes, row.chance, row.baseline]
        cells.append(accuracy_text(*row.score))
        if several:
            values = (metrics.reading(t.last_metrics, *place).value for t in best[0].trials)
            mean = interval_text(mean_interval(first[place])) if place in first else None
            cells.append(mean or _mean_text(values))
        both = place in first and place in second
        lead = difference(first[place], second[place]) if both else None
        leads.append(interval_text(lead, signed=True))
        rows.append(cells)
    measured = score_word(labels, [*labels.tasks, *labels.held_out])
    header = ["Label", "Role", "Classes", "Chance", "Baseline", f"Test {measured}"]
    header += ["Over the winner's seeds"] * several
    if set(leads) - {NOTHING}:
        header.append("Lead over the runner-up")
        rows = [[*cells, lead] for cells, lead in zip(rows, leads, strict=True)]
    return Table(header, rows, range(2, len(header)))


def warnings(results: SweepResults) -> list[str]:
    """Returns the warnings of the plan, about the data, and of the winner's probes."""
    of_winner = training_warnings(results.winner.last_metrics) if results.winner else []
    return [*results.lost, *results.plan_warnings, *of_winner]


def repeats(results: SweepResults) -> Table:
    """Returns the configurations with the mean and standard deviation over their seeds."""
    labels, space = results.labels, results.spec.search.space
    slugs = metrics.slugs(labels.tasks).values()
    rows = [
        [
            *(value_text(configuration.params.get(path)) for path in space),
            str(len(configuration.trials)),
            accuracy_text(configuration.value, configuration.spread),
            *(
                _mean_text(metrics.reading(t.probe_values, "val", s).value for t in seeds)
                for s in slugs
            ),
        ]
        for configuration in results.configurations()
        for seeds in [configuration.trials]
    ]
    header = [*space, "Seeds", upper(value_word(labels))]
    header += [label_title(labels, task) for task in labels.tasks]
    return Table(header, rows, range(len(header)), best=0)


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
    """Returns the mean and standard deviation of the values, without None."""
    found = [value for value in values if value is not None]
    mean = fmean(found) if found else None
    return accuracy_text(mean, stdev(found) if len(found) > 1 else None)


def _counted(results: SweepResults) -> str:
    order = (Status.FINISHED, Status.PRUNED, Status.FAILED, Status.INTERRUPTED, Status.RUNNING)
    counts = {s: sum(t.status == s for t in results.trials) for s in order}
    return ", ".join(f"{n} {s.words}" for s, n in counts.items() if n or s.is_final)


def _repeats(count: int, seed: int) -> str:
    return f" to {seed + count - 1}, each configuration {count} times" if count > 1 else ""
