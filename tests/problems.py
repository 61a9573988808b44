"""Helper that makes a `Problem`, from which a method is constructed."""

from typing import Any

from mtcon_ray.spec.problem import Problem


def problem(*tasks: str, **changes: Any) -> Problem:
    """Returns a problem with three classes per task, batches of six items, and two views.

    Heads have width 4; `changes` override fields.
    """
    fields: dict[str, Any] = {
        "kinds": dict.fromkeys(tasks, "classes"),
        "batch_size": 6,
        "num_views": 2,
        "head_dim": 4,
        "head_hidden": None,
        "encoder": "small",
        "sizes": dict.fromkeys(tasks, 3),
    }
    return Problem(**(fields | changes))
