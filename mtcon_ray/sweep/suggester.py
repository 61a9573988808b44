"""The search: suggests each configuration from the trials so far, by Optuna's samplers.

A suggestion is a function of the seed, the number of the configuration, the number of the draw, and
the trials. Therefore a resumed sweep suggests the same as an uninterrupted sweep. Nothing is
stored: the study of tpe and gp lives in memory and is made for each suggestion.
"""

import logging
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from random import Random
from typing import Any

import optuna
from optuna import distributions as kinds
from optuna.samplers import GPSampler, TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from mtcon_ray.base.paths import trial_name
from mtcon_ray.base.status import Status
from mtcon_ray.records.events import Earlier
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.spec.space import Dimension, Point, Space, grid_points, with_lists
from mtcon_ray.sweep.record import Trial
from mtcon_ray.sweep.stopping import make_stopping

# Repeated configurations of the sampler before random draws, and draws before the space counts as
# exhausted. TPE tends to repeat the best listed value.
MAX_DUPLICATES = 5
MAX_DRAWS = 100_000
# Number of first configurations that a plan shows.
NUM_PREVIEWED = 5

optuna.logging.set_verbosity(optuna.logging.WARNING)
# Without the package greenlet, importing Optuna's Gaussian process logs a message in the middle of
# a sweep's display.
logging.getLogger("optuna._gp.batched_lbfgsb").setLevel(logging.ERROR)


def distribution(dimension: Dimension) -> kinds.BaseDistribution:
    """Returns Optuna's distribution of a searched field."""
    if dimension.values is not None:
        return kinds.CategoricalDistribution(dimension.categories)
    assert dimension.bounds is not None
    (low, high), log, step = dimension.bounds, dimension.is_log, dimension.step
    if dimension.is_integer:
        return kinds.IntDistribution(int(low), int(high), log=log, step=int(step or 1))
    return kinds.FloatDistribution(low, high, log=log, step=step)


def distributions(space: Space, paths: Iterable[str]) -> dict[str, kinds.BaseDistribution]:
    """Returns Optuna's distributions of some searched fields, by path."""
    return {path: distribution(space[path]) for path in paths}


class _Trials(InMemoryStorage):
    """Storage in which the sampler finds `known`. Optuna's own copies each trial when it is added.

    The copies would take 0.7 s for a suggestion after 10,000 trials.
    """

    known: list[FrozenTrial]

    def get_all_trials(self, *_: Any, states: Any = None, **__: Any) -> list[FrozenTrial]:
        """Returns the trials in some states, or in all."""
        return [each for each in self.known if states is None or each.state in states]


class Suggester:
    """Source of a sweep's configurations. `earlier` are the trials of `search.start_from`."""

    def __init__(self, search: SearchSpec, seed: int, earlier: Sequence[Earlier] = ()) -> None:
        self.search, self.seed = search, seed
        of = partial(distributions, search.space)
        self._known = _known_points(search)
        self._keys: dict[str, str] = {}  # of all trials by name: each takes 9 µs
        self._ended: dict[str, FrozenTrial] = {}  # for Optuna, by name
        self._earlier = [
            create_trial(value=e.value, params=dict(e.params), distributions=of(e.params))
            for e in earlier
        ]

    def configuration(self, number: int, trials: Sequence[Trial]) -> Point | None:
        """Returns the configuration of this number, None if the space is exhausted.

        `trials` are all trials of earlier configurations, by number.
        """
        self._keys |= {t.name: _key(t.params) for t in trials if t.name not in self._keys}
        seen = set(self._keys.values())
        for draw in range(MAX_DRAWS):
            point = self._drawn(number, draw, trials)
            if not draw and number < len(self._known):
                point |= self._known[number]  # a user's point may lack fields
            if _key(point) not in seen:
                return point
        return None

    def _drawn(self, number: int, draw: int, trials: Sequence[Trial]) -> Point:
        space, sampler = self.search.space, self.search.sampler
        random = Random(f"{self.seed}/{number}/{draw}")
        shares = [random.random() for _ in space]
        if space and draw < MAX_DUPLICATES and sampler in ("tpe", "gp"):
            kind = GPSampler if sampler == "gp" else TPESampler
            chosen = kind(seed=random.getrandbits(31), n_startup_trials=num_startup(self.search))
            # A failed trial may be tried again.
            done = (t for t in trials if t.status in (Status.FINISHED, Status.PRUNED))
            self._ended |= {t.name: frozen(t, space) for t in done if t.name not in self._ended}
            # Ended trials first: of many trials TPE gives the first less weight.
            ordered = sorted(trials, key=lambda trial: trial.is_open)
            known = (self._ended.get(t.name) or frozen(t, space) for t in ordered)
            storage = _Trials()
            storage.known = [*self._earlier, *known]
            # The sampler sorts by number, and leaves out the number of the new trial, which is 0.
            for place, each in enumerate(storage.known, 1):
                each.number = place
            study = optuna.create_study(direction="maximize", sampler=chosen, storage=storage)
            return dict(study.ask(distributions(space, space)).params)
        if space and draw < MAX_DUPLICATES and sampler == "qmc":
            shares = self._spread(number + draw * self.search.num_configurations)
        return {p: d.at(share) for (p, d), share in zip(space.items(), shares, strict=True)}

    def _spread(self, index: int) -> list[float]:
        """Returns a point of the scrambled Sobol sequence of this seed, as a share by field."""
        from scipy.stats import qmc  # half as long as torch's import, for one sampler

        engine = qmc.Sobol(len(self.search.space), scramble=True, rng=self.seed)
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # of their number
            return [float(share) for share in engine.random(index + 1)[-1]]


def frozen(trial: Trial, space: Space, /, **attributes: Any) -> FrozenTrial:
    """Returns a trial for Optuna: an ended trial without a finite value has failed."""
    states = {Status.FINISHED: TrialState.COMPLETE, Status.PRUNED: TrialState.PRUNED}
    fails = trial.value is None or not math.isfinite(trial.value)
    state = TrialState.FAIL if fails else states.get(trial.status, TrialState.FAIL)
    return create_trial(
        state=TrialState.RUNNING if trial.is_open else state,
        value=trial.value if state is TrialState.COMPLETE else None,
        params=trial.params,
        distributions=distributions(space, trial.params),
        user_attrs=attributes,
        intermediate_values=trial.values,
    )


def num_startup(search: SearchSpec) -> int:
    """Returns the number of random trials before tpe and gp use results."""
    return max(1, min(10, search.num_planned_trials // 3))


def _known_points(search: SearchSpec) -> list[Point]:
    """Returns the user's points, then the grid's, without duplicates, in Optuna's categories."""
    space = search.space
    points = [{p: space[p].category(v) for p, v in point.items()} for point in search.first_points]
    if search.sampler == "grid" and space:
        known = set(map(_key, points))
        grid = ({p: space[p].category(v) for p, v in point.items()} for point in grid_points(space))
        # A grid may have far more points than the sweep tries.
        others = (point for point in grid if _key(point) not in known)
        points += islice(others, search.num_configurations)
    return points


def preview(search: SearchSpec, seed: int, earlier: Sequence[Earlier] = ()) -> tuple[Point, ...]:
    """Returns at most NUM_PREVIEWED first configurations, which do not depend on results.

    They may depend on `earlier`, the trials of earlier sweeps. Raises SpecError for an unsupported
    scheduler. `plan` and the driver both call this function before anything starts.
    """
    if search.scheduler is not None:
        make_stopping(search.scheduler)
    independent = search.num_configurations
    if search.sampler in ("tpe", "gp"):
        independent = max(1, num_startup(search) - len(earlier), len(search.first_points))
    suggester, trials = Suggester(search, seed, earlier), list[Trial]()
    for number in range(min(NUM_PREVIEWED, independent)):
        if (point := suggester.configuration(number, trials)) is None:
            break
        trials.append(Trial(trial_name(number), number, point, seed, 1, status=Status.FAILED))
    return tuple(with_lists(search.space, trial.params) for trial in trials)


def _key(params: Mapping[str, Any]) -> str:
    """Returns a text that is unique for each configuration, up to the rounding of steps."""
    # Optuna's gp gives 0.10000000000000002 for 0.1, and a user 0.3 for 0.1 * 3.
    rounded = {p: float(f"{v:.14g}") if isinstance(v, float) else v for p, v in params.items()}
    return repr(sorted(rounded.items()))
