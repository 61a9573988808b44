"""Every use of Optuna's private interfaces, checked against Optuna 5.0 (`optuna>=5.0,<6`)."""

import logging

import optuna
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
