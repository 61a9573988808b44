"""Problems for methods to be built for."""

from typing import Any

from mtcon_ray.data.batch import Problem


def problem(*tasks: str, **changes: Any) -> Problem:
    """Tasks of three classes each, in batches of six items with two views; heads of width 4."""
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
