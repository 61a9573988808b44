"""The Optuna study of a sweep: the record of its trials, and the source of new configurations.

A new sampler is made for each suggestion, seeded with (seed, number of the suggestion). So a
resumed sweep draws the same random numbers as an uninterrupted sweep.
"""

import math
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.samplers import BaseSampler, GPSampler, QMCSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from mtcon_ray.base.paths import is_trial
from mtcon_ray.errors import MtconError, SpecError, storage_error
from mtcon_ray.spec.schedulers import SCHEDULERS, StoppingRule
from mtcon_ray.spec.search import SearchSpec
from mtcon_ray.spec.space import Dimension, Point, with_lists
from mtcon_ray.sweep.journal import Journal, damaged
from mtcon_ray.sweep.optuna_private import reloaded

# Repeated configurations of the sampler before a random draw, and of the random sampler before the
# space counts as exhausted. TPE tends to repeat the best listed value.
MAX_DUPLICATES = 5
MAX_RANDOM_DUPLICATES = 100
# In a space of at most this many points, the random draw is from the points not suggested yet: the
# random sampler would repeat the others ever more often.
MAX_LISTED = 10_000
# Supported schedulers in addition to stopping rules, see `tune_scheduler` and `halving.Rung`.
ACTING = ("asha", "halving", "none")
# Number of first configurations that a plan shows.
NUM_PREVIEWED = 5

TRIAL = "mtcon.trial"
REPEAT = "mtcon.repeat"
REASON = "mtcon.reason"
CONFIGURATION = "mtcon.configuration"
# Sweep and name of a trial of `search.start_from`, which has none of the other attributes.
PRIOR = "mtcon.prior"


def open_study(journal: Path | None, name: str) -> optuna.Study:
    """Returns the study in a journal file, created if absent, or in memory if no file is given.

    Only for the sweep's driver. Raises StorageError, or SweepError for a damaged journal.
    """
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = _storage(journal) if journal else None
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize", load_if_exists=True
    )
    if journal:
        _check_attributes(study, journal)
    return study


def read_study(journal: Path, name: str) -> optuna.Study:
    """Returns the study in a journal file, or an empty study without a file.

    Only reads, also while a driver writes it. Raises SweepError for a damaged journal.
    """
    if journal.exists():
        storage = _storage(journal)
        with suppress(KeyError):  # the driver may not have written the study's first line yet
            study = optuna.load_study(study_name=name, storage=storage)
            _check_attributes(study, journal)
            return study
    return open_study(None, name)


def _storage(journal: Path) -> JournalStorage:
    """Reads a journal. Raises StorageError, or SweepError for a damaged line."""
    try:
        return JournalStorage(Journal(journal))
    except MtconError:
        raise
    except Exception as error:  # Optuna checks no line: it raises almost anything
        found = f"{type(error).__name__}: {error}"
        raise storage_error(error) or damaged(journal, found) from None


def _check_attributes(study: optuna.Study, journal: Path) -> None:
    """Raises SweepError if a named trial lacks an attribute, because its line is lost.

    Names become parts of paths, so only names given by this package are accepted.
    """
    for name in (t.user_attrs.get(TRIAL) for t in study.get_trials(deepcopy=False)):
        if name is not None and not (isinstance(name, str) and is_trial(name)):
            raise damaged(journal, f"a trial is named {name!r:.100}")
    for trial in named_trials(study):
        for key in (CONFIGURATION, REPEAT):
            if not isinstance(trial.user_attrs.get(key), int):
                found = f"{trial.user_attrs[TRIAL]} has {key} {trial.user_attrs.get(key)!r}"
                raise damaged(journal, found)


def distribution(dimension: Dimension) -> BaseDistribution:
    """Returns Optuna's distribution of a searched field."""
    if dimension.values is not None:
        return CategoricalDistribution(dimension.categories)
    assert dimension.bounds is not None
    low, high = dimension.bounds
    if dimension.is_integer:
        return IntDistribution(
            int(low), int(high), log=dimension.is_log, step=int(dimension.step or 1)
        )
    return FloatDistribution(low, high, log=dimension.is_log, step=dimension.step)


class Suggester:
    """Source of a sweep's new trials, which are stored in the study under their names."""

    def __init__(self, study: optuna.Study, search: SearchSpec, seed: int) -> None:
        self.study = study
        self.search = search
        self.seed = seed
        self.distributions = {p: distribution(d) for p, d in search.space.items()}
        self.known = _known_points(search)
        given = named_trials(study)
        self.num_given = len(given)
        # Counted here: reading all trials for each suggestion takes ever longer.
        self._num_stored = len(study.get_trials(deepcopy=False))
        self._params = {t.user_attrs[CONFIGURATION]: t.params for t in reversed(given)}
        self._seen = {_key(t.params) for t in given}

    @property
    def num_trials(self) -> int:
        """Number of trials of the whole sweep: configurations times repeats."""
        return self.search.num_planned_trials

    def next(self) -> FrozenTrial | None:
        """Returns a new trial in state RUNNING, or None after the last or in an exhausted space."""
        if self.num_given >= self.num_trials:
            return None
        configuration, repeat = divmod(self.num_given, self.search.repeats)
        # Points are queued singly, because Optuna suggests queued points before all others.
        if repeat:
            self.study.enqueue_trial(self._params[configuration])
        elif configuration < len(self.known):
            self.study.enqueue_trial(self.known[configuration])
        trial = self._ask() if repeat else self._ask_new()
        if trial is None:
            return None
        trial.set_user_attr(CONFIGURATION, configuration)
        trial.set_user_attr(REPEAT, repeat)
        # The name is set last, because a named trial is resumed after a kill in between.
        trial.set_user_attr(TRIAL, trial_name(self.num_given))
        self.num_given += 1
        self._params.setdefault(configuration, trial.params)
        self._seen.add(_key(trial.params))
        return reloaded(self.study, trial)

    def _ask(self, *, at_random: bool = False) -> optuna.Trial:
        seed = self._random().getrandbits(31)
        self.study.sampler = RandomSampler(seed=seed) if at_random else self._sampler(seed)
        trial = self.study.ask(self.distributions)
        self._num_stored = trial.number + 1
        return trial

    def _ask_new(self) -> optuna.Trial | None:
        for attempt in range(MAX_DUPLICATES + MAX_RANDOM_DUPLICATES):
            if attempt >= MAX_DUPLICATES and (left := self._left()):
                self.study.enqueue_trial(self._random().choice(left))
            trial = self._ask(at_random=attempt >= MAX_DUPLICATES)
            if _key(trial.params) not in self._seen:
                return trial
            trial.set_user_attr(REASON, "the sampler repeated a configuration; not trained")
            self.study.tell(trial, state=TrialState.FAIL)
        return None

    def _random(self) -> Random:
        """Returns the random numbers of the next suggestion, the same after a resume."""
        return Random(f"{self.seed}/{self._num_stored}")

    def _left(self) -> list[Point]:
        """Returns the points not suggested yet, or no points if there are too many to list."""
        sizes = [dimension.size for dimension in self.search.space.values()]
        if math.prod(size or math.inf for size in sizes) > MAX_LISTED:
            return []
        values = product(*map(_values, self.distributions.values()))
        points = (dict(zip(self.distributions, each, strict=True)) for each in values)
        return [point for point in points if _key(point) not in self._seen]

    def _sampler(self, seed: int) -> BaseSampler:
        startup, at_random = num_startup(self.search), RandomSampler(seed=seed)
        match self.search.sampler:
            case "tpe":
                return TPESampler(seed=seed, n_startup_trials=startup)
            case "gp":
                return GPSampler(seed=seed, n_startup_trials=startup, independent_sampler=at_random)
            case "qmc":
                # The same seed in all suggestions, because they share a single sequence of points.
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
                    return QMCSampler(
                        seed=self.seed,
                        scramble=True,
                        independent_sampler=at_random,
                        warn_asynchronous_seeding=False,
                    )
        return at_random


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


def trial_name(number: int) -> str:
    """Returns the name of the sweep's trial of this number, from 0."""
    return f"trial-{number:04d}"


def named_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Returns the ended and open trials with a name, in order of suggestion.

    If a failed trial was opened again, only its last attempt is returned.
    """
    named = (t for t in study.get_trials(deepcopy=False) if TRIAL in t.user_attrs)
    return list({t.user_attrs[TRIAL]: t for t in named}.values())


def open_again(study: optuna.Study, trial: FrozenTrial, values: Mapping[int, float]) -> None:
    """Opens a failed trial again, with its values by epoch so far.

    Optuna never changes an ended trial. So the study keeps the failed trial and gets another trial
    of the same name and configuration, by a single line of the journal.
    """
    attempt = create_trial(
        state=TrialState.RUNNING,
        params=trial.params,
        distributions=trial.distributions,
        user_attrs={key: trial.user_attrs[key] for key in (TRIAL, REPEAT, CONFIGURATION)},
        system_attrs=trial.system_attrs,
        intermediate_values=dict(values),
    )
    study.add_trial(attempt)


def preview(
    search: SearchSpec,
    seed: int,
    count: int = NUM_PREVIEWED,
    *,
    prior: Sequence[FrozenTrial] = (),
) -> tuple[Point, ...]:
    """Returns at most `count` first configurations, which do not depend on results.

    They may depend on `prior`, the trials of earlier sweeps. Raises SpecError for an unsupported
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
        independent = max(1, num_startup(search) - len(prior), len(search.first_points))
    once = search.model_copy(update={"repeats": 1})
    study = open_study(None, "preview")
    study.add_trials(prior)
    suggester = Suggester(study, once, seed)
    points: list[Point] = []
    while len(points) < min(count, independent) and (trial := suggester.next()):
        points.append(with_lists(search.space, trial.params))
        suggester.study.tell(trial.number, 0.0)
    return tuple(points)


def _values(distribution: BaseDistribution) -> Sequence[Any]:
    """Returns all values of a finite distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    assert isinstance(distribution, IntDistribution | FloatDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    assert step is not None
    return [min(low + i * step, high) for i in range(round((high - low) / step) + 1)]


def _key(params: dict[str, Any]) -> str:
    """Returns a text that is unique for each configuration, up to the rounding of steps."""
    # Optuna's gp gives 0.10000000000000002 for 0.1, and a user 0.3 for 0.1 * 3.
    rounded = {p: float(f"{v:.14g}") if isinstance(v, float) else v for p, v in params.items()}
    return repr(sorted(rounded.items()))
