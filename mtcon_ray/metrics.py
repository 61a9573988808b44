"""The names of everything that is tracked: written here once, read everywhere.

Values are fractions, losses are nats per anchor, rates are per second of training.
The step of a metric is the epoch, counted from 1.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mtcon_ray.errors import SpecError

LOSS = "loss"
LEARNING_RATE = "lr"
IMAGES_PER_SECOND = "images_per_second"
# The objective that a sweep maximises: the mean over the tasks of their scores on `val`.
MEAN_ACCURACY, MEAN_SCORE = "val/accuracy", "val/score"
# With `evaluate.select: best` also the objective of the selected network so far, by which MLflow
# sorts: of a metric it shows the value of the last epoch.
BEST = "val/best"
# Of the reported probes: the norm of their gradient as a share of that at zero weights.
PROBE_GRADIENT = "probe/gradient"
# By kind of label: accuracy of classes, mean average precision of a set, R^2 of a number.
SCORES = {"classes": "accuracy", "set": "map", "number": "r2"}
TITLES = {"classes": "accuracy", "set": "mAP", "number": "R²"}
# Share of a step's triplets whose far image is farther from the anchor than the close one.
TRIPLET_ACCURACY = "triplet_accuracy"


def objective_name(kinds: Iterable[str]) -> str:
    """Returns the objective's name: val/accuracy if all tasks are of classes, else val/score.

    >>> objective_name(["classes", "classes"]), objective_name(["classes", "set"])
    ('val/accuracy', 'val/score')
    """
    return MEAN_ACCURACY if set(kinds) == {"classes"} else MEAN_SCORE


def objective_title(kinds: Iterable[str]) -> str:
    """Returns the scores that the objective is a mean of, as people read them.

    >>> objective_title(["classes"]), objective_title(["number", "set", "classes"])
    ('accuracy', 'mean of accuracy, mAP, R²')
    """
    present = set(kinds)
    titles = [text for kind, text in TITLES.items() if kind in present]
    return titles[0] if len(titles) == 1 else f"mean of {', '.join(titles)}"


def objective(values: Mapping[str, float]) -> float | None:
    """Returns the objective among an epoch's metrics, None without one.

    Accepts both names for all tasks: records of tasks of several kinds once had val/accuracy.
    """
    return values.get(MEAN_SCORE, values.get(MEAN_ACCURACY))


def loss(task: str) -> str:
    """Loss of one task, unweighted."""
    return f"loss/{task}"


def sigma(task: str) -> str:
    """exp(s/2), where s is the log variance that the method learns for a task."""
    return f"sigma/{task}"


def weight(task: str) -> str:
    """The factor in front of a task's loss, as applied in this epoch's last step."""
    return f"weight/{task}"


def accuracy(split: str, label: str) -> str:
    """Top-1 accuracy of a linear probe; split is `val`, `test` or `heldout`."""
    return f"{split}/accuracy/{label}"


def accuracy_std(split: str, label: str) -> str:
    """Bootstrap standard deviation of that accuracy."""
    return f"{split}/accuracy_std/{label}"


def neighbours(split: str, label: str) -> str:
    """Accuracy of a weighted vote of the nearest training items, without a probe."""
    return f"{split}/knn/{label}"


def score(kind: str, split: str, label: str) -> str:
    """What stands for a label of a kind: accuracy of classes, map of a set, r2 of a number."""
    return f"{split}/{SCORES[kind]}/{label}"


def score_std(kind: str, split: str, label: str) -> str:
    """Bootstrap standard deviation of that score."""
    return f"{split}/{SCORES[kind]}_std/{label}"


def average_precision(split: str, label: str) -> str:
    """Mean over a set's labels of the tie-aware average precision, beside `map`."""
    return f"{split}/map_tie_aware/{label}"


def f1(split: str, mean: str, label: str) -> str:
    """F1 of a label set; mean is `micro`, `macro` or `sample`."""
    return f"{split}/f1_{mean}/{label}"


def title(kind: str) -> str:
    """What people call the score of a kind of label."""
    return TITLES[kind]


class Reading(NamedTuple):
    """The score that was tracked for a label and its deviation; None where there is none."""

    value: float | None
    std: float | None


def reading(values: Mapping[str, float], split: str, label: str) -> Reading:
    """What metrics say of a label, whatever its kind; label is a slug."""
    for kind in SCORES:
        value, std = (values.get(name(kind, split, label)) for name in (score, score_std))
        if value is not None or std is not None:
            return Reading(value, std)
    return Reading(None, None)


def cosine_positive(head: str | None = None) -> str:
    """Mean cosine of positive pairs in an epoch's last step; head only where there are several."""
    return "cosine/positive" if head is None else f"cosine/positive/{head}"


def cosine_random(head: str | None = None) -> str:
    """Mean cosine of pairs of different images there: near that of positives after a collapse."""
    return "cosine/random" if head is None else f"cosine/random/{head}"


def temperature_at_min(head: str) -> str:
    """Share of a head's learned pair temperatures that lie at their lower bound."""
    return f"temperature_at_min/{head}"


def temperature_at_max(head: str) -> str:
    """Share of a head's learned pair temperatures that lie at their upper bound."""
    return f"temperature_at_max/{head}"


def slug(column: str) -> str:
    """A label column's name as it stands in metric names.

    >>> slug("Heel height (cm)")
    'heel-height-cm'
    """
    return re.sub(r"[^a-z0-9_]+", "-", column.lower()).strip("-") or "label"


def slugs(columns: tuple[str, ...]) -> dict[str, str]:
    """Each column's slug. Raises SpecError where two columns share one."""
    names: dict[str, str] = {}
    for column in columns:
        name = slug(column)
        if name in names.values():
            other = next(c for c, s in names.items() if s == name)
            raise SpecError(
                f"label columns must differ in letters and digits, got {other!r} and {column!r}, "
                f"which would both be tracked as {name!r}; rename one in the CSV"
            )
        names[column] = name
    return names
