"""The results of a sweep as lines of text: the leaderboard and its winner."""

from collections.abc import Iterator, Mapping
from typing import Any

from mtcon_ray import metrics
from mtcon_ray.cli.drawing import STATES
from mtcon_ray.cli.terminal import printable
from mtcon_ray.cli.text import accuracy, configuration, folded, shortened, table
from mtcon_ray.places import checkpoint_folder
from mtcon_ray.report.standing import probe_values, probe_warnings
from mtcon_ray.report.text import network_text
from mtcon_ray.results import SweepResults, TrialResult
from mtcon_ray.spec import RunSpec
from mtcon_ray.training.checkpoint import kept_model

NUM_LEADERS = 10
# Columns of a configuration that is cut; with less room it stands below its row instead.
LEAST_CONFIGURATION = 24
CONFIGURATION = 2  # its column


def leaderboard(
    results: SweepResults, limit: int | None = NUM_LEADERS, columns: int | None = None
) -> list[str]:
    """Trials from best to worst, with their value and each task's score on test.

    In a table wider than `columns` the reasons of failures and the configurations are cut, or the
    configurations stand below their rows; values and states are never cut.
    """
    data = results.spec.data
    objective, title = _objective(results.spec)
    tasks = {metrics.slug(task): metrics.title(data.kind_of(task)) for task in data.tasks}
    shown = results.ranked()[:limit]
    seeds = ["seed"] if results.spec.search.repeats > 1 else []
    networks = ["network"] if results.spec.evaluate.select == "best" else []
    header = ["#", "trial", "configuration", *seeds, "epochs", *networks, objective]
    header += [f"test {t}" + (f" ({w})" if w != "accuracy" else "") for t, w in tasks.items()]
    header += ["state"]
    rows = []
    for place, trial in enumerate(shown, 1):
        values = last_metrics(trial)
        rows.append(
            [
                str(place),
                trial.name,
                configuration(trial.params),
                *([str(trial.seed)] if seeds else []),
                f"{trial.last_epoch}/{trial.epochs}",
                *([f"epoch {e}" if (e := trial.model_epoch) else "-"] if networks else []),
                accuracy(trial.value),
                *(accuracy(metrics.reading(values, "test", task).value) for task in tasks),
                _state(trial),
            ]
        )
    hidden = len(results.trials) - len(shown)
    more = [f"... and {hidden} more"] if hidden > 0 else []
    more += [f"{objective}: {title}"] if title != "accuracy" else []
    if columns is None:
        return table(header, rows) + more
    states = max((len(STATES[trial.status]) for trial in shown), default=0) + len(":…")
    cuts = [(len(header) - 1, states), (CONFIGURATION, LEAST_CONFIGURATION)]
    cells, fits = shortened([header, *rows], columns, cuts)
    if fits:
        return table(cells[0], cells[1:]) + more
    cells, _ = shortened([header, *rows], columns, cuts[:1])
    for line in cells:
        line.append(line.pop(CONFIGURATION))
    return folded(cells, columns) + more


def accuracies(spec: RunSpec, plan: Mapping[str, Any], values: dict[str, float]) -> list[str]:
    """A line per label that was measured: classes, baseline, accuracy and its bootstrap deviation.

    The baseline is the score that is reached without the images. Of a label set the mean average
    precision stands for the accuracy, of a number R^2. Where it was measured, the accuracy of the
    nearest training items is the last column. A last line warns of probes that have not converged.
    """
    classes, majority = plan.get("classes", {}), plan.get("majority", {})
    rows, nearest = [], []
    for split, what, columns in (
        ("test", "test", spec.data.tasks),
        ("heldout", "held out", spec.data.held_out),
    ):
        for column in columns:
            found = metrics.reading(values, split, metrics.slug(column))
            if found.value is not None:
                kind = spec.data.kind_of(column)
                title = metrics.title(kind)
                count = f"{classes.get(column, '?')}{' labels' if kind == 'set' else ''}"
                score = accuracy(found.value, found.std)
                rows.append(
                    [
                        what,
                        column,
                        "-" if kind == "number" else count,
                        accuracy(majority.get(column)),
                        score if kind == "classes" else f"{title} {score}",
                    ]
                )
                nearest.append(values.get(metrics.neighbours(split, metrics.slug(column))))
    if not rows:
        return []
    header = ["", "label", "classes", "baseline", "accuracy"]
    if any(value is not None for value in nearest):
        header.append(f"{spec.evaluate.neighbours}-NN")
        rows = [[*row, accuracy(value)] for row, value in zip(rows, nearest, strict=True)]
    warnings = [f"warning: {text}" for text in probe_warnings(values)]
    return table(header, rows, right=[2]) + warnings


def last_metrics(trial: TrialResult) -> dict[str, float]:
    """Metrics of the last completed epoch, {} before there is one."""
    return trial.reports[-1][1] if trial.reports else {}


def winner_lines(results: SweepResults) -> Iterator[str]:
    """The winner, its accuracies and where it is; one line if there is none."""
    winner = results.winner
    if winner is None:
        yield "no winner: no trial has trained for its full budget"
        return
    value, (objective, title) = accuracy(winner.value), _objective(results.spec)
    scores = "" if title == "accuracy" else f" ({title})"
    yield (
        f"winner: {winner.name} ({configuration(winner.params)}), {objective} {value}{scores}, "
        f"{network_text(winner)}"
    )
    for line in accuracies(results.spec, results.plan, last_metrics(winner)):
        yield f"  {line}"
    yield f"checkpoint: {kept_checkpoint(results, winner)}"


def kept_checkpoint(results: SweepResults, trial: TrialResult) -> str:
    """Returns the path of the network that a trial's value is of; a training is its own trial."""
    folder = results.folder
    place = folder if trial.name == folder.name else checkpoint_folder(folder, trial.name)
    return str(kept_model(place))


def trial_record(results: SweepResults, trial: TrialResult) -> dict[str, Any]:
    """A trial as plain data, for --json."""
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
        "metrics": last_metrics(trial) | probe_values(trial),
        "checkpoint": kept_checkpoint(results, trial),
    }


def _objective(spec: RunSpec) -> tuple[str, str]:
    """Returns the objective's name and the scores that it is a mean of."""
    kinds = {spec.data.kind_of(task) for task in spec.data.tasks}
    return metrics.objective_name(kinds), metrics.objective_title(kinds)


def _state(trial: TrialResult) -> str:
    state = STATES[trial.status]
    return printable(f"{state}: {trial.reason}".splitlines()[0]) if trial.reason else state
