"""Every use of Optuna's private interfaces, checked against Optuna 5.0 (`optuna>=5.0,<6`)."""

import logging
from typing import Any

import optuna
from optuna._transform import _SearchSpaceTransform
from optuna.distributions import BaseDistribution
from optuna.samplers import CmaEsSampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial

# The import of its Gaussian process says in the middle of a sweep's display that it does without
# the package greenlet, which would make a suggestion faster by tenths of a second.
logging.getLogger("optuna._gp.batched_lbfgsb").setLevel(logging.ERROR)


def writable(study: optuna.Study, trial: FrozenTrial) -> optuna.Trial:
    """Returns a handle that reports values and attributes to an open trial of the study.

    Optuna gives such a handle to whoever asked for the trial, in that process only. A resumed
    sweep has the stored trial alone.
    """
    return optuna.Trial(study, trial._trial_id)


def reloaded(study: optuna.Study, trial: FrozenTrial | optuna.Trial) -> FrozenTrial:
    """Returns a trial as the study holds it now.

    `Study.get_trials` would copy all trials for it.
    """
    return study._storage.get_trial(trial._trial_id)


class ReplayedCmaEs(CmaEsSampler):
    """CMA-ES whose state is computed again from the finished trials for each suggestion.

    Optuna's sampler pickles its state into the study and loads it from there. A sweep's folder may
    come from somebody else, and loading a pickle runs what it holds.
    """

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, BaseDistribution],
    ) -> dict[str, Any]:
        """Returns the next parameters, as Optuna's sampler would."""
        self._space, self._direction = search_space, study.direction
        return super().sample_relative(study, trial, search_space)

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:
        """Returns the state after all whole generations, so that nothing is left to be pickled."""
        transform = _SearchSpaceTransform(self._space, transform_step=True, transform_0_1=True)
        optimizer = self._init_optimizer(transform, self._direction)
        sign = 1 if self._direction is StudyDirection.MINIMIZE else -1
        while True:
            # Optuna marks each trial with the generation in which it was suggested.
            solutions = [
                (transform.transform(trial.params), sign * trial.value)
                for trial in self._get_solution_trials(completed_trials, optimizer.generation)
                if trial.value is not None
            ]
            if len(solutions) < optimizer.population_size:
                return optimizer
            optimizer.tell(solutions[: optimizer.population_size])
