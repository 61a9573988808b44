"""The names of everything that is tracked: written here once, read everywhere.

Values are fractions, losses are nats per anchor, rates are per second of training.
The step of a metric is the epoch, counted from 1.
"""

import re

from mtcon_ray.errors import SpecError

LOSS = "loss"
LEARNING_RATE = "lr"
IMAGES_PER_SECOND = "images_per_second"
OBJECTIVE = "val/accuracy"


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
