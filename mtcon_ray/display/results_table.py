"""The results of a sweep as lines of text: its leaderboard, its winner and their scores."""

from collections.abc import Iterator, Mapping
from typing import Any

from mtcon_ray.base import metrics
from mtcon_ray.base.paths import REMOVED_FILE, checkpoint_folder, kept_model
from mtcon_ray.display.presentation import (
    NOTHING,
    accuracy_text,
    configuration_text,
    label_scores,
    network_text,
    training_warnings,
)
from mtcon_ray.display.progress_table import state_text
from mtcon_ray.display.tables import Table
from mtcon_ray.records.results import SweepResults, TrialResult

NUM_LEADERS = 10
WORDS = {"test": "test", "heldout": "held out"}


def leaderboard_lines(
    results: SweepResults, limit: int | None = NUM_LEADERS, columns: int | None = None
) -> list[str]:
    """Returns the trials from best to worst, with their value and each task's test score.

    In a terminal of `columns` texts wrap.
    """
    labels = results.labels
    objective, title = labels.objective, labels.objective_title
    shown = results.ranked()[:limit]
    table = {
        "#": [str(place) for place in range(1, len(shown) + 1)],
        "trial": [trial.name for trial in shown],
        "configuration": [configuration_text(trial.params) for trial in shown],
    }
    if results.spec.search.repeats > 1:
        table["seed"] = [str(trial.seed) for trial in shown]
    table["epochs"] = [f"{trial.last_epoch}/{trial.epochs}" for trial in shown]
    if results.spec.evaluate.select == "best":
        epochs = [trial.model_epoch for trial in shown]
        table["network"] = [f"epoch {epoch}" if epoch else NOTHING for epoch in epochs]
    table[objective] = [accuracy_text(trial.value) for trial in shown]
    for task, slug in metrics.slugs(labels.tasks).items():
        tests = [metrics.reading(trial.last_metrics, "test", slug).value for trial in shown]
        score = metrics.TITLES[labels.kinds[task]]
        of_score = "" if score == "accuracy" else f" ({score})"
        table[f"test {slug}{of_score}"] = list(map(accuracy_text, tests))
    table["state"] = [state_text(trial.status, trial.reason) for trial in shown]
    lines = Table(list(table), list(zip(*table.values(), strict=True))).lines(columns)
    more = len(results.trials) - len(shown)
    notes = [f"... and {more} more"] if more > 0 else []
    notes += [f"{objective}: {title}"] if title != "accuracy" else []
    return [*lines, *notes]


def score_lines(results: SweepResults, values: Mapping[str, float]) -> list[str]:
    """Returns a table of the labels measured among a trial's last metrics.

    Its last column has the accuracies of the nearest training items, if there are any. A warning
    follows if the probes have not converged.
    """
    found = label_scores(results.labels, results.plan, values)
    if not found:
        return []
    header = ["", "label", "classes", "baseline", "accuracy"]
    rows = [
        [WORDS[s.split], s.title, s.classes, s.baseline, accuracy_text(*s.score)] for s in found
    ]
    names = results.labels.slugs
    nearest = [values.get(metrics.neighbours(s.split, names[s.label])) for s in found]
    if any(value is not None for value in nearest):
        header.append(f"{results.spec.evaluate.neighbours}-NN")
        rows = [[*row, accuracy_text(value)] for row, value in zip(rows, nearest, strict=True)]
    warnings = [f"warning: {text}" for text in training_warnings(values)]
    return Table(header, rows, right=[2]).lines() + warnings


def winner_lines(results: SweepResults) -> Iterator[str]:
    """Yields the winner, its scores and its checkpoint, or a single line without a winner."""
    winner = results.winner
    if winner is None:
        yield "no winner: no trial has trained for its full budget"
        return
    value, labels = accuracy_text(winner.value), results.labels
    scores = "" if labels.objective_title == "accuracy" else f" ({labels.objective_title})"
    yield (
        f"winner: {winner.name} ({configuration_text(winner.params)}), {labels.objective} {value}"
        f"{scores}, {network_text(winner)}"
    )
    for line in score_lines(results, winner.last_metrics):
        yield f"  {line}"
    yield f"checkpoint: {kept_checkpoint(results, winner) or 'removed by storage.keep'}"


def kept_checkpoint(results: SweepResults, trial: TrialResult) -> str | None:
    """Returns the path of the network behind a trial's value, None if it was removed.

    A training is its own trial.
    """
    folder = results.folder
    place = folder if trial.name == folder.name else checkpoint_folder(folder, trial.name)
    model = kept_model(place)
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
