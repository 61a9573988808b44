"""Helpers that make a `Problem`, from which a method is constructed, and networks without one."""

from collections.abc import Callable
from typing import Any

from mtcon_ray.models.encoders import Encoder
from mtcon_ray.models.network import Network, ProjectionHead
from mtcon_ray.spec.problem import Problem


def problem(*tasks: str, **changes: Any) -> Problem:
    """Returns a problem with three classes per task, batches of six items, and two views.

    Heads have width 4; `changes` override fields.
    """
    fields: dict[str, Any] = {
        "kinds": dict.fromkeys(tasks, "classes"), "sizes": dict.fromkeys(tasks, 3),
        "batch_size": 6, "num_views": 2, "head_dim": 4, "head_hidden": None, "encoder": "small",
    }  # fmt: skip
    return Problem(**(fields | changes))


def projections(names: tuple[str, ...], *, dim: int) -> Callable[[Encoder], Network]:
    """Returns a function that builds a network with a projection head per name."""

    def make(encoder: Encoder) -> Network:
        return Network(encoder, {n: ProjectionHead(encoder.width, dim=dim) for n in names})

    return make
