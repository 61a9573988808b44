"""Every use of Optuna's private interfaces, checked against Optuna 5.0 (`optuna>=5.0,<6`)."""

import logging

import optuna
from optuna.trial import FrozenTrial

# Without the package greenlet, which saves tenths of a second per suggestion, importing Optuna's
# Gaussian process logs a message in the middle of a sweep's display.
logging.getLogger("optuna._gp.batched_lbfgsb").setLevel(logging.ERROR)


def writable(study: optuna.Study, trial: FrozenTrial) -> optuna.Trial:
    """Returns a handle to report values and attributes to an open trial of the study.

    Optuna gives such a handle only to the process that asked for the trial. A resumed sweep has
    only the stored trial.
    """
    return optuna.Trial(study, trial._trial_id)


def reloaded(study: optuna.Study, trial: FrozenTrial | optuna.Trial) -> FrozenTrial:
    """Returns the current state of a trial in the study.

    `Study.get_trials` would copy all trials.
    """
    return study._storage.get_trial(trial._trial_id)
