"""Small searches with made-up values, whose trials end at once."""

from typing import Any

from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.study import Suggester

TEMPERATURE = "method.temperature"


def search(**fields: Any) -> SearchSpec:
    space = fields.pop("space", {TEMPERATURE: {"loguniform": [0.03, 1.0]}})
    return SearchSpec.model_validate({"space": space, **fields})


def value_of(params: dict[str, Any]) -> float:
    """Returns a made-up accuracy whose best temperature is 0.1."""
    return 1 - abs(float(params.get(TEMPERATURE, 0.3)) - 0.1)


def run(suggester: Suggester, count: int = 10_000) -> list[dict[str, Any]]:
    """Takes up to `count` suggestions and ends each trial before the next suggestion."""
    taken: list[dict[str, Any]] = []
    while len(taken) < count and (trial := suggester.next()):
        taken.append(trial.params)
        suggester.study.tell(trial.number, value_of(trial.params))
    return taken


TWO = {TEMPERATURE: {"loguniform": [0.03, 1.0]}, "train.batch_size": {"logint": [16, 512]}}
