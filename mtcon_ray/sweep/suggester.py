"""The search: suggests each configuration from the trials so far, by Optuna's samplers.

A suggestion is a function of the seed, the number of the configuration, the number of the draw, and
the trials. Therefore a resumed sweep suggests the same as an uninterrupted sweep. Nothing is
stored: the study of tpe and gp lives in memory and is made for each suggestion.
"""

import logging
import math
import warnings
from collections.abc import Mapping, Sequence
from itertools import islice, product
from random import Random
from typing import Any

import optuna
from optuna import distributions as kinds
from optuna.samplers import BaseSampler, GPSampler, RandomSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial
from scipy.stats import qmc

from mtcon_ray.base.paths import trial_name
from mtcon_ray.base.status import Status
from mtcon_ray.errors import SpecError
from mtcon_ray.records.events import Earlier
from mtcon_ray.spec.schedulers import SCHEDULERS, StoppingRule
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.spec.space import Dimension, Point, with_lists
from mtcon_ray.sweep.record import Trial

# Repeated configurations of the sampler before a random draw, and of the random sampler before the
# space counts as exhausted. TPE tends to repeat the best listed value.
MAX_DUPLICATES = 5
MAX_RANDOM_DUPLICATES = 100
# In a space of at most this many points, the random draw is from the points not suggested yet: the
# random sampler would repeat the others ever more often.
MAX_LISTED = 10_000
# Supported schedulers in addition to stopping rules, see `stopping` and `halving`.
ACTING = ("asha", "halving", "none")
# Number of first configurations that a plan shows.
NUM_PREVIEWED = 5

optuna.logging.set_verbosity(optuna.logging.WARNING)
# Without the package greenlet, which saves tenths of a second per suggestion, importing Optuna's
# Gaussian process logs a message in the middle of a sweep's display.
logging.getLogger("optuna._gp.batched_lbfgsb").setLevel(logging.ERROR)


def distribution(dimension: Dimension) -> kinds.BaseDistribution:
    """Returns Optuna's distribution of a searched field."""
    if dimension.values is not None:
        return kinds.CategoricalDistribution(dimension.categories)
    assert dimension.bounds is not None
    low, high = dimension.bounds
    if dimension.is_integer:
        return kinds.IntDistribution(
            int(low), int(high), log=dimension.is_log, step=int(dimension.step or 1)
        )
    return kinds.FloatDistribution(low, high, log=dimension.is_log, step=dimension.step)


class Suggester:
    """Source of a sweep's configurations. `earlier` are the trials of `search.start_from`."""

    def __init__(self, search: SearchSpec, seed: int, earlier: Sequence[Earlier] = ()) -> None:
        self.search = search
        self.seed = seed
        self.distributions = {p: distribution(d) for p, d in search.space.items()}
        self._known = _known_points(search)
        self._earlier = [self._frozen(TrialState.COMPLETE, e.params, e.value, {}) for e in earlier]
        self._ended: dict[str, FrozenTrial] = {}

    def configuration(self, number: int, trials: Sequence[Trial]) -> Point | None:
        """Returns the configuration of this number, None if the space is exhausted.

        `trials` are all trials of earlier configurations, by number.
        """
        seen = {_key(trial.params) for trial in trials}
        for draw in range(MAX_DUPLICATES + MAX_RANDOM_DUPLICATES):
            random = Random(f"{self.seed}/{number}/{draw}")
            if not draw and number < len(self._known):
                # A user's point may lack fields.
                point = self._drawn(number, draw, random, trials) | self._known[number]
            elif draw >= MAX_DUPLICATES and (left := self._left(seen)):
                point = random.choice(left)
            else:
                at_random = draw >= MAX_DUPLICATES
                point = self._drawn(number, draw, random, () if at_random else trials)
            if _key(point) not in seen:
                return point
        return None

    def _drawn(self, number: int, draw: int, random: Random, trials: Sequence[Trial]) -> Point:
        if self.search.sampler == "grid" or not self.distributions:
            return {}
        if self.search.sampler == "qmc" and draw < MAX_DUPLICATES:
            return self._spread_point(number + draw * self.search.num_configurations)
        seed = random.getrandbits(31)
        sampler: BaseSampler = RandomSampler(seed=seed)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        if draw < MAX_DUPLICATES and self.search.sampler in ("tpe", "gp"):
            self._fill(study, trials)
            study.sampler = _sampler(self.search, seed)
        return dict(study.ask(self.distributions).params)

    def _fill(self, study: optuna.Study, trials: Sequence[Trial]) -> None:
        """Adds all trials to a study. Its sampler draws at random meanwhile."""
        for trial in trials:
            if not trial.is_open and trial.name not in self._ended:
                self._ended[trial.name] = self._over(trial)
        ended = [self._ended[trial.name] for trial in trials if trial.name in self._ended]
        study.add_trials([*self._earlier, *ended])
        for trial in trials:
            if trial.is_open:
                study.enqueue_trial(trial.params)
                handle = study.ask(self.distributions)
                for epoch, value in sorted(trial.values.items()):
                    handle.report(value, step=epoch)

    def _over(self, trial: Trial) -> FrozenTrial:
        state = over_state(trial)
        value = trial.value if state is TrialState.COMPLETE else None
        return self._frozen(state, trial.params, value, trial.values)

    def _frozen(
        self,
        state: TrialState,
        params: Mapping[str, Any],
        value: float | None,
        values: Mapping[int, float],
    ) -> FrozenTrial:
        return create_trial(
            state=state,
            value=value,
            params=dict(params),
            distributions={path: self.distributions[path] for path in params},
            intermediate_values=dict(values),
        )

    def _left(self, seen: set[str]) -> list[Point]:
        """Returns the points not suggested yet, or no points if there are too many to list."""
        sizes = [dimension.size for dimension in self.search.space.values()]
        if math.prod(size or math.inf for size in sizes) > MAX_LISTED:
            return []
        values = product(*map(_values, self.distributions.values()))
        points = (dict(zip(self.distributions, each, strict=True)) for each in values)
        return [point for point in points if _key(point) not in seen]

    def _spread_point(self, index: int) -> Point:
        """Returns a point of the scrambled Sobol sequence of this seed."""
        engine = qmc.Sobol(len(self.search.space), scramble=True, rng=self.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about the number of points
            shares = engine.random(index + 1)[-1]
        space = self.search.space.items()
        return {p: d.at(float(share)) for (p, d), share in zip(space, shares, strict=True)}


def _sampler(search: SearchSpec, seed: int) -> BaseSampler:
    startup, at_random = num_startup(search), RandomSampler(seed=seed)
    if search.sampler == "gp":
        return GPSampler(seed=seed, n_startup_trials=startup, independent_sampler=at_random)
    return TPESampler(seed=seed, n_startup_trials=startup)


def over_state(trial: Trial) -> TrialState:
    """Returns Optuna's state of an ended trial: without a finite value it has failed."""
    states = {Status.FINISHED: TrialState.COMPLETE, Status.PRUNED: TrialState.PRUNED}
    has_value = trial.value is not None and math.isfinite(trial.value)
    return states.get(trial.status, TrialState.FAIL) if has_value else TrialState.FAIL


def num_startup(search: SearchSpec) -> int:
    """Returns the number of random trials before tpe and gp use results."""
    return max(1, min(10, search.num_planned_trials // 3))


def _known_points(search: SearchSpec) -> list[Point]:
    """Returns the user's points, then the grid's, without duplicates, in Optuna's categories."""
    space = search.space
    points = [{p: space[p].category(v) for p, v in point.items()} for point in search.first_points]
    if search.sampler == "grid" and space:
        known = set(map(_key, points))
        values = product(*(dimension.categories for dimension in space.values()))
        grid = (dict(zip(space, each, strict=True)) for each in values)
        # A grid may have far more points than the sweep tries.
        others = (point for point in grid if _key(point) not in known)
        points += islice(others, search.num_configurations)
    return points


def preview(
    search: SearchSpec, seed: int, count: int = NUM_PREVIEWED, *, earlier: Sequence[Earlier] = ()
) -> tuple[Point, ...]:
    """Returns at most `count` first configurations, which do not depend on results.

    They may depend on `earlier`, the trials of earlier sweeps. Raises SpecError for an unsupported
    scheduler, with which a sweep would never stop a trial. `plan` and the driver both call this
    function before anything starts.
    """
    name = "none" if search.scheduler is None else search.scheduler.name
    if name not in ACTING and not issubclass(SCHEDULERS[name], StoppingRule):
        raise SpecError(
            f"search.scheduler must be one that sweeps can act on ({', '.join(ACTING)}, or a "
            f"class derived from StoppingRule), got {name!r}"
        )
    independent = search.num_configurations
    if search.sampler in ("tpe", "gp"):
        independent = max(1, num_startup(search) - len(earlier), len(search.first_points))
    suggester, trials = Suggester(search, seed, earlier), list[Trial]()
    for number in range(min(count, independent)):
        if (point := suggester.configuration(number, trials)) is None:
            break
        name = trial_name(number)
        trials.append(Trial(name, number, point, number, seed, 1, status=Status.FAILED))
    return tuple(with_lists(search.space, trial.params) for trial in trials)


def _values(distribution: kinds.BaseDistribution) -> Sequence[Any]:
    """Returns all values of a finite distribution."""
    if isinstance(distribution, kinds.CategoricalDistribution):
        return distribution.choices
    assert isinstance(distribution, kinds.IntDistribution | kinds.FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    assert step is not None
    return [min(low + i * step, high) for i in range(round((high - low) / step) + 1)]


def _key(params: Mapping[str, Any]) -> str:
    """Returns a text that is unique for each configuration, up to the rounding of steps."""
    # Optuna's gp gives 0.10000000000000002 for 0.1, and a user 0.3 for 0.1 * 3.
    rounded = {p: float(f"{v:.14g}") if isinstance(v, float) else v for p, v in params.items()}
    return repr(sorted(rounded.items()))
