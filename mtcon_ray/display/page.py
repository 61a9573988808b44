"""Content of the report page as plain text for the template."""

import shlex
from collections.abc import Sequence

from mtcon_ray.base import paths
from mtcon_ray.base.status import Status
from mtcon_ray.display import presentation as show, results_table as tables
from mtcon_ray.display.ranking import deviation, margin, resampled, verdict
from mtcon_ray.display.tables import Table
from mtcon_ray.evaluation.intervals import difference, score_interval
from mtcon_ray.records.events import Event, Started
from mtcon_ray.records.results import SweepResults


def headline(results: SweepResults) -> tuple[str, str]:
    """Returns a sentence about the winner and its lead, and sentences to rate the lead."""
    if (winner := results.winner) is None:
        return (
            "No trial finished with its full budget, so there is no winner.",
            f"{_counted(results)}.{' The reasons are given below.' if failures(results) else ''}",
        )
    best = results.configurations()[0]
    who = show.configuration_text(winner.params) if winner.params else winner.name
    labels = results.labels
    if best.spread is None:
        value = show.accuracy_text(winner.value, deviation(winner, labels))
    else:
        value = show.accuracy_text(best.value, best.spread)
        value += f" (mean and deviation over {len(best.trials)} seeds)"
    start = f"{who} won with {labels.objective} {value}{show.objective_note(labels)}"
    network = f"The winner is {winner.name}, {show.network_text(winner)}."
    if (lead := margin(results)) is None:
        alone = "No other configuration had its full budget to compare it with."
        return f"{start}.", f"{alone} {network}"
    second = show.configuration_text(lead.runner_up.params)
    by = lead.deviations
    times = f" ({abs(by):.1f} bootstrap deviations)" if by is not None else ""
    side = "above" if lead.gap >= 0 else "below"
    sentence = f"{start}, {abs(lead.gap):.3f}{times} {side} the runner-up, {second}."
    return sentence, f"{verdict(lead)} {network}"


def facts(results: SweepResults) -> list[tuple[str, str, str]]:
    """Returns name, value and explanation of each key fact."""
    trials = results.trials
    trained, budget = sum(t.last_epoch for t in trials), sum(t.epochs for t in trials)
    seconds = sum(t.seconds for t in trials)
    return [
        ("Trials", str(len(trials)), _counted(results)),
        ("Epochs", f"{trained:,}", f"of {budget:,} that all trials have"),
        ("Time", show.duration_text(seconds), "of training and evaluation, over all trials"),
    ]


def accuracies(results: SweepResults) -> Table:
    """Returns a row for each label of the winner: its score, mean over seeds, and lead.

    With repeats the mean has a 95 % interval over seeds and items. The lead is the paired
    difference from the runner-up's mean. Its column is omitted if no label has stored predictions
    of both.
    """
    values = results.winner.last_metrics if results.winner else {}
    columns = tables.score_columns(results, values)
    places = tables.measured(results.labels, values).values()
    stored = [resampled(results, each.trials) for each in results.configurations()[:2]]
    first, second = [*stored, {}, {}][:2]
    if results.spec.search.repeats > 1:
        means = {at: score_interval(scores) for at, scores in first.items()}
        columns["over the winner's seeds"] = [show.interval_text(means.get(at)) for at in places]
    leads = {at: difference(first[at], second[at]) for at in first.keys() & second.keys()}
    if any(leads.get(at) for at in places):
        shown = [show.interval_text(leads.get(at), signed=True) for at in places]
        columns["lead over the runner-up"] = shown
    return Table.of(columns, range(2, len(columns)))


def warnings(results: SweepResults) -> list[str]:
    """Returns the warnings of the plan, about the data, and of the winner's probes and values."""
    return [*results.lost, *results.plan_warnings, *tables.winner_warnings(results)]


def repeats(results: SweepResults) -> Table:
    """Returns the configurations with the mean and standard deviation over their seeds."""
    found = results.configurations()
    columns = {
        "configuration": [show.configuration_text(each.params) for each in found],
        "seeds": [str(len(each.trials)) for each in found],
        results.labels.objective: [show.accuracy_text(c.value, c.spread) for c in found],
    }
    return Table.of(columns, right=(1, 2), best=0)


def failures(results: SweepResults) -> list[tuple[str, str]]:
    """Returns the names of the failed or interrupted trials of each reason, and the full reason."""
    by_reason: dict[str, list[str]] = {}
    for trial in results.trials:
        if trial.status in (Status.FAILED, Status.INTERRUPTED):
            reason = trial.reason or f"{trial.status.words}; no reason was recorded"
            by_reason.setdefault(reason, []).append(trial.name)
    return [(", ".join(names), reason) for reason, names in by_reason.items()]


def commands(results: SweepResults) -> list[tuple[str, str]]:
    """Returns titles and shell commands to repeat the whole sweep, and the winner alone."""
    root = paths.shown(results.folder.parents[1])
    found = [("The whole sweep", ["sweep", str(results.folder / paths.SPEC_FILE)])]
    if results.winner is not None:
        found.append(("The winner alone", ["train", "--from", results.name, "--root", root]))
    return [(title, shlex.join(["mtcon-ray", *words])) for title, words in found]


def provenance(events: Sequence[Event]) -> list[tuple[str, str]]:
    """Returns name and value of each provenance tag of the sweep's first start, sorted by name."""
    tags = events[0].tags if events and isinstance(events[0], Started) else {}
    return [(name.removeprefix("mtcon."), value) for name, value in sorted(tags.items())]


def _counted(results: SweepResults) -> str:
    order = (Status.FINISHED, Status.PRUNED, Status.FAILED, Status.INTERRUPTED, Status.RUNNING)
    counts = {s: sum(t.status == s for t in results.trials) for s in order}
    return ", ".join(f"{n} {s.words}" for s, n in counts.items() if n or s.is_final)
