"""Small searches with made-up values, whose trials end at once."""

from typing import Any

from mtcon_ray.base.paths import trial_name
from mtcon_ray.base.status import Status
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.sweep.record import Trial
from mtcon_ray.sweep.suggester import Suggester

TEMPERATURE = "method.temperature"


def search(**fields: Any) -> SearchSpec:
    space = fields.pop("space", {TEMPERATURE: {"loguniform": [0.03, 1.0]}})
    return SearchSpec.model_validate({"space": space, **fields})


def value_of(params: dict[str, Any]) -> float:
    """Returns a made-up accuracy whose best temperature is 0.1."""
    return 1 - abs(float(params.get(TEMPERATURE, 0.3)) - 0.1)


def run(suggester: Suggester, count: int = 10_000) -> list[dict[str, Any]]:
    """Takes up to `count` suggestions and ends each trial before the next suggestion."""
    trials: list[Trial] = []
    while len(trials) < min(count, suggester.search.num_configurations):
        number = len(trials)
        if (point := suggester.configuration(number, trials)) is None:
            break
        trials.append(ended(number, point, value_of(point)))
    return [trial.params for trial in trials]


def ended(number: int, params: dict[str, Any], value: float) -> Trial:
    """Returns a finished trial of a single epoch."""
    name, status = trial_name(number), Status.FINISHED
    return Trial(name, number, params, 0, 1, status=status, values={1: value})


TWO = {TEMPERATURE: {"loguniform": [0.03, 1.0]}, "train.batch_size": {"logint": [16, 512]}}
