"""Export of a sweep as an Optuna study, for optuna-dashboard and `optuna.load_study`."""

from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState, create_trial

from mtcon_ray.base.root_files import check_no_links, move, remove
from mtcon_ray.base.status import Status
from mtcon_ray.data.disk import partial_of
from mtcon_ray.errors import UserError
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.sweep.record import SweepRecord, Trial
from mtcon_ray.sweep.suggester import distribution, over_state


def write_study(folder: Path, spec: RunSpec, target: Path) -> int:
    """Writes the trials of a sweep to Optuna's journal file. Returns the number of trials.

    The study has the sweep's name. Raises UserError if the file exists.
    """
    check_no_links(target)
    if target.exists():
        raise UserError(f"--out must name a new file, got {target}, which exists already")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    partly = partial_of(target)
    remove(partly)  # of an export that was killed
    study = optuna.create_study(
        storage=JournalStorage(JournalFileBackend(str(partly))),
        study_name=folder.name,
        direction="maximize",
    )
    trials = list(SweepRecord(folder, spec).trials.values())
    for trial in trials:
        study.add_trial(_frozen(trial, spec))
    move(partly, target)
    return len(trials)


def _frozen(trial: Trial, spec: RunSpec) -> optuna.trial.FrozenTrial:
    state = TrialState.RUNNING if trial.is_open else over_state(trial)
    attributes = {"trial": trial.name, "seed": trial.seed, "status": Status(trial.status).words}
    if trial.reason:
        attributes["reason"] = trial.reason
    return create_trial(
        state=state,
        value=trial.value if state is TrialState.COMPLETE else None,
        params=trial.params,
        distributions={path: distribution(spec.search.space[path]) for path in trial.params},
        user_attrs=attributes,
        intermediate_values=trial.values,
    )
