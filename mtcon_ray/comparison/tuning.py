"""Equal tuning: the sweeps to choose a system's configuration before its final trainings.

Every system tries the same number of configurations for the same number of epochs. Selection reads
validation scores alone.
"""

import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field

from mtcon_ray.base.status import Status
from mtcon_ray.errors import MtconError, SpecError
from mtcon_ray.records.results import Configuration, SweepResults, by_configuration
from mtcon_ray.spec.run_spec import RunSpec, parse_spec, set_value, with_values
from mtcon_ray.spec.search import LIMITS, SearchSpec
from mtcon_ray.spec.space import Dimension, Point

# Listed values, and configurations, of all systems. Every value and configuration is checked.
MAX_TUNED = 10_000
# Dimensions added by a system to `tune.space`. None removes a dimension.
Changes = Mapping[str, Dimension | None]


class TuneSpec(SearchSpec):
    """The section `search` of every tuned system, and the budgets of tuning."""

    epochs: int = Field(ge=1, le=100_000, description="of each configuration")
    again: int | None = Field(
        None,
        ge=1,
        description="number of best configurations trained again for train.epochs. The best of "
        "them is chosen. null: the best after `epochs` is chosen",
    )
    seeds: int = Field(3, ge=1, le=100, description="final trainings, with seeds unused in tuning")

    def search(self, changes: Changes) -> dict[str, Any]:
        """Returns a system's section `search` as plain data."""
        space = {path: d for path, d in {**self.space, **changes}.items() if d is not None}
        points = [{p: v for p, v in point.items() if p in space} for point in self.first_points]
        changed = {"space": space, "first_points": tuple(filter(None, points))}
        own = self.model_copy(update=changed if space else {**changed, "num_trials": None})
        return own.model_dump(mode="json", by_alias=True, include=set(SearchSpec.model_fields))


class Tuning(NamedTuple):
    """A system's sweeps before the final sweep.

    `first` tries all configurations. `again` trains the best once more, for the final number of
    epochs, and `again_spec` sets them. Both use the spec's seed, and with `repeats` the next seeds.
    """

    first: RunSpec
    again: RunSpec | None


def make_tuning(
    tune: TuneSpec, changes: Changes, raw: Mapping[str, Any], *, where: str, folder: Path
) -> Tuning:
    """Returns the sweeps to tune a system with spec `raw`. Relative paths start at `folder`.

    They have no test scores, which nothing reads and which take half of a short trial on a CPU.
    The space is checked at both budgets. Raises SpecError for anything invalid, with a message that
    begins with `where`.
    """
    limits = (raw.get("search") or {}).keys() & {*LIMITS} - tune.model_fields_set
    search = tune.search(changes) | {name: raw["search"][name] for name in limits}
    if "train.epochs" in search["space"]:
        raise SpecError(
            f"{where}: leave train.epochs out of the space, tune.epochs sets it for all"
        )
    whole = {"num_trials": tune.again or 1, "first_points": [], "scheduler": {"name": "none"}}
    own = deepcopy(dict(raw))
    set_value(own, "evaluate.test", False)  # val chooses
    short = deepcopy(own)
    set_value(short, "train.epochs", tune.epochs)
    stages = {"tune": {**short, "search": search}, "again": {**own, "search": {**search, **whole}}}
    first, again = (
        parse_spec(
            {**given, "name": f"{raw['name']}-{stage}"}, where=f"{where}, {stage}", folder=folder
        )
        for stage, given in stages.items()
    )
    num_configurations = first.search.num_configurations
    if (tune.again or 1) > num_configurations:
        rule = f"{where}: tune.again must be at most the number of configurations"
        raise SpecError(f"{rule}, got {tune.again} of {num_configurations}")
    return Tuning(first, again if tune.again else None)


def check_equal(tuning: Mapping[str, Tuning], where: str) -> None:
    """Raises SpecError if two systems, by title, try different numbers of configurations.

    The same if all systems together try more than MAX_TUNED.
    """
    numbers = {title: each.first.search.num_configurations for title, each in tuning.items()}
    if len(set(numbers.values())) > 1:
        most, fewest = (pick(numbers, key=numbers.__getitem__) for pick in (max, min))
        raise SpecError(
            f"{where}: tune must try the same number of configurations in each system, got "
            f"{numbers[most]} in {most!r} and {numbers[fewest]} in {fewest!r}; list more values in "
            "the smaller space, or lower tune.num_trials"
        )
    if (total := sum(numbers.values())) > MAX_TUNED:
        rule = f"tune must try at most {MAX_TUNED:,} configurations over all systems"
        raise SpecError(f"{where}: {rule}, got {total:,}; lower tune.num_trials")


def again_spec(again: RunSpec, first: SweepResults) -> RunSpec:
    """Returns the sweep `again` with the best configurations of the first sweep set.

    Raises MtconError if no configuration has a value.
    """
    if not (points := best_points(first, again.search.num_configurations)):
        raise MtconError(f"nothing to train again: no trial of {first.name!r} has a finite value")
    return with_values(again, {"search.num_trials": len(points), "search.first_points": points})


def best_points(results: SweepResults, count: int) -> list[Point]:
    """Returns the best configurations, at most `count`, best first.

    Configurations trained for a larger share of their epochs under early stopping come first: they
    were better at the same epoch. A configuration ended at a plateau counts as fully trained. Then
    the mean validation score over seeds decides.
    """
    valued = [t for t in results.trials if t.value is not None and t.status != Status.FAILED]

    def key(found: Configuration) -> tuple[float, float]:
        shares = (1.0 if t.full_budget else t.last_epoch / t.epochs for t in found.trials)
        return math.fsum(shares), found.value  # exact, so equal for any order of the shares

    best = sorted(by_configuration(valued), key=key, reverse=True)[:count]
    return [found.params for found in best]
