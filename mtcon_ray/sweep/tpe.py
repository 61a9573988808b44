"""Optuna's TPE over a space that is known, at a cost that does not grow with the trials."""

from collections.abc import Container
from heapq import nlargest
from itertools import islice, takewhile
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState

# Optuna's own splits, converts and fits all trials before for each suggestion, the oldest of them
# at the least weight. Up to so many it is asked as it is; beyond them the best, a few of which it
# models as good ones, and the latest stand for all. `benchmarks/suggestions.py` compares what
# is found; with half as many it was sometimes a little worse.
MAX_ENDED = 400
NUM_BEST = 25


class KnownSpaceTPE(TPESampler):
    """TPE that is told its space, and that fits its model to MAX_ENDED ended trials at most.

    Optuna's own reads the space off all trials, which a sampler that is made anew has not kept.
    `modelled` is of one study, and goes from a sampler to the next.
    """

    def __init__(
        self,
        space: dict[str, BaseDistribution],
        modelled: "Modelled | None" = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._known = {name: space[name] for name in sorted(space) if not space[name].single()}
        self._modelled = modelled or Modelled()

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All fields that have a choice."""
        return dict(self._known)

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Values for the fields of the space; none until enough trials have ended."""
        every = study.get_trials(deepcopy=False)
        kept = self._modelled.of(every)
        if len(kept) < len(every):
            view = StudyView(study, kept)
            study = optuna.create_study(storage=view, direction=study.direction)
        return super().sample_relative(study, trial, search_space)


class Modelled:
    """The best and latest of a study's trials, each trial looked at until it has ended.

    Who is neither among the best nor the latest of the first trials is not of all of them.
    """

    def __init__(self) -> None:
        self._kept: list[FrozenTrial] = []  # of the trials that had ended when all before had
        self._num_settled = 0

    def of(self, every: list[FrozenTrial]) -> list[FrozenTrial]:
        """`best_and_latest` of all trials, of which earlier calls have seen the first."""
        rest = islice(every, self._num_settled, None)
        settled = list(takewhile(lambda t: t.state.is_finished(), rest))
        self._num_settled += len(settled)
        self._kept = best_and_latest(self._kept + settled)
        return best_and_latest(self._kept + every[self._num_settled :])


def best_and_latest(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """All trials up to MAX_ENDED that have ended; of more, so many and those that run, in order.

    Of the ended ones the NUM_BEST completed of the highest values, and the latest of the others.
    """
    ended = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    if len(ended) <= MAX_ENDED:
        return trials
    completed = [t for t in ended if t.state is TrialState.COMPLETE]
    kept = {t.number for t in nlargest(NUM_BEST, completed, key=lambda t: t.values[0])}
    others = [t.number for t in ended if t.number not in kept]
    kept.update(others[len(kept) - MAX_ENDED :])
    return [t for t in trials if t.number in kept or t.state is TrialState.RUNNING]


class StudyView(InMemoryStorage):
    """A storage that shows some of a study's trials; what is written goes to the study's own."""

    def __init__(self, study: optuna.Study, trials: list[FrozenTrial]) -> None:
        super().__init__()
        self._written = study._storage
        self._shown = trials

    def get_all_trials(
        self,
        study_id: int,
        deepcopy: bool = True,
        states: Container[TrialState] | None = None,
    ) -> list[FrozenTrial]:
        return [t for t in self._shown if states is None or t.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        self._written.set_trial_system_attr(trial_id, key, value)
