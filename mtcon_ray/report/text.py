"""How a report writes values, deviations, times and commands."""

import json
import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mtcon_ray import metrics
from mtcon_ray.evaluation.intervals import Interval
from mtcon_ray.results import SweepResults, TrialResult
from mtcon_ray.spec import RunSpec

# So many searched fields are named in a sentence; the tables name all.
MAX_NAMED = 3
# Behind an interval that covers test items alone.
ONE_SEED = "¹"
ONE_SEED_NOTE = "One seed, of either side: the interval covers the test items alone."


def value_text(value: Any) -> str:
    """A searched value as read: numbers to 4 digits, the rest as YAML would have it.

    >>> [value_text(v) for v in (0.123456, 20, None, True, "cosine")]
    ['0.1235', '20', 'null', 'true', 'cosine']
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    return value if isinstance(value, str) else json.dumps(value)


def accuracy_text(value: float | None, spread: float | None = None) -> str:
    """A fraction to 3 decimals with its deviation where there is one; a dash without a value.

    >>> accuracy_text(0.73261, 0.01049)
    '0.733 ± 0.010'
    """
    if value is None or not math.isfinite(value):
        return "—"
    known = spread is not None and math.isfinite(spread)
    return f"{value:.3f} ± {spread:.3f}" if known else f"{value:.3f}"


def interval_text(interval: Interval | None, *, signed: bool = False) -> str:
    """A mean with its 95 % interval, marked where that has one seed alone; a dash without.

    >>> interval_text(Interval(0.7431, 0.7312, 0.7549, over_seeds=True))
    '0.743 [0.731, 0.755]'
    >>> interval_text(Interval(0.0123, -0.0031, 0.0269, over_seeds=False), signed=True)
    '+0.012 [-0.003, +0.027]¹'
    """
    if interval is None:
        return "—"
    value, low, high = (f"{number:{'+' * signed}.3f}" for number in interval[:3])
    return f"{value} [{low}, {high}]{'' if interval.over_seeds else ONE_SEED}"


def score_word(spec: RunSpec, labels: Iterable[str] | None = None) -> str:
    """Returns the name of the labels' scores: of one kind their own name, else "score".

    Labels are the tasks unless others are given.
    """
    kinds = {spec.data.kind_of(label) for label in labels or spec.data.tasks}
    return metrics.objective_title(kinds) if len(kinds) == 1 else "score"


def score_note(spec: RunSpec) -> str:
    """Returns, in brackets, the scores that "score" is a mean of; "" where it has a name."""
    kinds = {spec.data.kind_of(task) for task in spec.data.tasks}
    return f" ({metrics.objective_title(kinds)})" if len(kinds) > 1 else ""


def capitalised(words: str) -> str:
    """Returns the words with a capital at the start, unless the first is a name such as mAP.

    >>> capitalised("accuracy while training"), capitalised("mAP while training")
    ('Accuracy while training', 'mAP while training')
    """
    return words if words.startswith("mAP") else words[:1].upper() + words[1:]


def network_text(trial: TrialResult) -> str:
    """Returns the epoch of a trial's network, as in "network of epoch 12 of 20"."""
    return f"network of epoch {trial.model_epoch} of {trial.epochs}"


def label_title(spec: RunSpec, label: str) -> str:
    """A label's name, and what it is scored by unless that is accuracy."""
    title = metrics.title(spec.data.kind_of(label))
    return label if title == "accuracy" else f"{label} ({title})"


def duration_text(seconds: float) -> str:
    """A span of time in its two largest units.

    >>> duration_text(3725)
    '1 h 2 min'
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def params_text(params: dict[str, Any]) -> str:
    """Searched values in a sentence, by the last part of their paths.

    >>> params_text({"method.temperature": 0.1, "train.lr": 0.2})
    'temperature = 0.1, lr = 0.2'
    """
    short = [path.rsplit(".", 1)[-1] for path in params]
    names = short if len(set(short)) == len(short) else list(params)
    pairs = [f"{n} = {value_text(v)}" for n, v in zip(names, params.values(), strict=True)]
    left = len(pairs) - MAX_NAMED
    return ", ".join(pairs[:MAX_NAMED]) + (f" and {left} more" if left > 0 else "")


def commands(results: SweepResults, spec_path: Path) -> list[tuple[str, str]]:
    """What each command does, and the command: the whole sweep, and the winner alone."""
    path = shlex.quote(str(spec_path))
    found = [("The whole sweep", f"mtcon-ray sweep {path}")]
    if results.winner is not None:
        alone = ["The winner alone", f"mtcon-ray train {path}{_overrides(results, results.winner)}"]
        found.append((alone[0], alone[1]))
    return found


def _overrides(results: SweepResults, trial: TrialResult) -> str:
    values = {**trial.params, **({} if trial.seed == results.spec.seed else {"seed": trial.seed})}
    settings = [f"{path}={json.dumps(value)}" for path, value in values.items()]
    return "".join(f" \\\n  --set {shlex.quote(setting)}" for setting in settings)
