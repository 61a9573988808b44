"""The results of a sweep as lines of text: its leaderboard, its winner and their scores."""

from collections.abc import Iterator, Mapping
from typing import Any

from mtcon_ray.base import metrics
from mtcon_ray.base.paths import MODEL_FILE, REMOVED_FILE, stored_url
from mtcon_ray.display import presentation as show
from mtcon_ray.display.tables import Table
from mtcon_ray.records.results import SweepResults, TrialResult
from mtcon_ray.spec.evaluate import CONVERGED

NUM_LEADERS = 10
WORDS = {"test": "test", "heldout": "held out"}


def leaderboard(results: SweepResults, limit: int | None = None) -> Table:
    """Returns the trials from best to worst, with their value and each task's test score."""
    labels, ranked = results.labels, results.ranked()
    shown = ranked[:limit]
    table = {
        "#": [str(place) for place in range(1, len(shown) + 1)],
        "trial": [trial.name for trial in shown],
        "configuration": [show.configuration_text(trial.params) for trial in shown],
    }
    if results.spec.search.repeats > 1:
        table["seed"] = [str(trial.seed) for trial in shown]
    table["epochs"] = [f"{trial.last_epoch}/{trial.epochs}" for trial in shown]
    table[labels.objective] = [show.accuracy_text(trial.value) for trial in shown]
    for task, slug in metrics.slugs(labels.tasks).items():
        tests = [metrics.reading(trial.last_metrics, "test", slug).value for trial in shown]
        heading = f"test {show.one_line(show.label_title(labels, task))}"
        table[heading] = list(map(show.accuracy_text, tests))
    table["state"] = [_state_text(trial) for trial in shown]
    return Table.of(table, best=ranked.index(results.winner) if results.winner else None)


def leaderboard_lines(
    results: SweepResults, limit: int | None = NUM_LEADERS, columns: int | None = None
) -> list[str]:
    """Returns the leaderboard. In a terminal of `columns` texts wrap."""
    labels, more = results.labels, len(results.trials) - (limit or len(results.trials))
    notes = [f"... and {more} more"] if more > 0 else []
    if show.objective_note(labels):
        notes.append(f"{labels.objective}: {labels.objective_title}")
    return [*leaderboard(results, limit).lines(columns), *notes]


def measured(labels: metrics.Labels, values: Mapping[str, float]) -> dict[str, tuple[str, str]]:
    """Returns split and slug of each label with a score among a trial's last metrics."""
    places = labels.places.items()
    return {name: at for name, at in places if metrics.reading(values, *at).value is not None}


def score_columns(results: SweepResults, values: Mapping[str, float]) -> dict[str, list[str]]:
    """Returns the columns of a table of the labels measured among a trial's last metrics.

    `classes` counts a label set's labels too. `baseline` is the best score without looking at the
    images. Accuracies of the nearest training items and scores of retrieval follow, if there are
    any.
    """
    labels, plan = results.labels, results.plan
    sizes, majority = (plan.classes, plan.majority) if plan else ({}, {})
    found = measured(labels, values)
    units = {"classes": "", "set": " labels"}
    extents = {c: f"{sizes[c]}{units[labels.kinds[c]]}" for c in found if c in sizes}
    table = {
        "": [WORDS[split] for split, _ in found.values()],
        "label": [show.label_title(labels, label) for label in found],
        "classes": [extents.get(label, show.NOTHING) for label in found],
        "baseline": [show.accuracy_text(majority.get(label)) for label in found],
        "accuracy": [show.accuracy_text(*metrics.reading(values, *at)) for at in found.values()],
    }
    names = {f"{results.spec.evaluate.neighbours}-NN": metrics.KNN, "recall@1": "recall_at_1"}
    for heading, name in {**names, "mAP@R": "map_at_r", "head's mAP@R": "map_at_r"}.items():
        space = metrics.HEAD if "head" in heading else None
        values_of = [values.get(metrics.retrieval(space or s, name, x)) for s, x in found.values()]
        if any(value is not None for value in values_of):
            table[heading] = list(map(show.accuracy_text, values_of))
    return table


def winner_warnings(results: SweepResults) -> list[str]:
    """Returns the warnings about the winner, [] without a winner.

    They come from the gauges of its last epoch and from its probes, which may not have converged.
    There is a sentence for each of its searched numbers at an end of the tried values.
    """
    if (winner := results.winner) is None:
        return []
    margin = winner.params.get("method.margin", getattr(results.spec.method, "margin", None))
    found = show.gauge_warnings(winner.last_metrics, margin)
    if (gradient := winner.last_metrics.get(metrics.PROBE_GRADIENT, 0.0)) > CONVERGED:
        text = f"the probes have not converged (gradient {gradient:.0e} of its start); "
        found.append(text + "accuracies may be too low")
    for path, value in winner.params.items():
        values = (trial.params.get(path) for trial in results.trials)
        tried = {value for value in values if isinstance(value, int | float)}
        if len(tried) > 2 and value in (min(tried), max(tried)):
            end, side = ("lowest", "lower") if value == min(tried) else ("highest", "higher")
            text = f"the winner's {path} is the {end} of {len(tried)} tried values, "
            found.append(f"{text}{show.value_text(value)}; {side} values may be better")
    return found


def winner_lines(results: SweepResults) -> Iterator[str]:
    """Yields the winner, its scores and its checkpoint, or a single line without a winner."""
    if (winner := results.winner) is None:
        yield "no winner: no trial has trained for its full budget"
        return
    value, labels = show.accuracy_text(winner.value), results.labels
    yield (
        f"winner: {winner.name} ({show.configuration_text(winner.params)}), {labels.objective} "
        f"{value}{show.objective_note(labels)}, {show.network_text(winner)}"
    )
    scores = Table.of(score_columns(results, winner.last_metrics), right=[2])
    warnings = (f"warning: {text}" for text in winner_warnings(results))
    yield from (f"  {line}" for line in (*(scores.lines() if scores.rows else ()), *warnings))
    yield f"checkpoint: {kept_checkpoint(results, winner) or 'removed by storage.keep'}"


def kept_checkpoint(results: SweepResults, trial: TrialResult) -> str | None:
    """Returns the path of the network behind a trial's value, None if it was removed.

    In an object store, returns the URL of its folder.
    """
    place = results.folder_of(trial)
    if url := stored_url(place):
        return f"{url}/"
    model = place / MODEL_FILE
    return None if not model.exists() and (place / REMOVED_FILE).exists() else str(model)


def trial_record(results: SweepResults, trial: TrialResult) -> dict[str, Any]:
    """Returns a trial as plain data, for --json."""
    return {
        "trial": trial.name,
        "status": trial.status,
        "reason": trial.reason,
        "params": trial.params,
        "seed": trial.seed,
        "epoch": trial.last_epoch,
        "epochs": trial.epochs,
        "model_epoch": trial.model_epoch,
        "value": trial.value,
        # Test scores are recorded with the last epoch, whichever network they are of.
        "metrics": trial.last_metrics | trial.probe_values,
        "checkpoint": kept_checkpoint(results, trial),
    }


def _state_text(trial: TrialResult) -> str:
    """Returns the state in words, with the first line of a failure's reason."""
    first = (trial.reason or "").strip().partition("\n")[0]
    return f"{trial.status.words}: {first}" if first else trial.status.words
