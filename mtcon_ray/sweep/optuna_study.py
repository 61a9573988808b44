"""Export of a sweep as an Optuna study, for optuna-dashboard and `optuna.load_study`."""

from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from mtcon_ray.base.root_files import check_no_links, move, remove
from mtcon_ray.data.disk import partial_of
from mtcon_ray.errors import UserError
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.suggester import frozen


def write_study(folder: Path, spec: RunSpec, target: Path) -> int:
    """Writes the trials of a sweep to Optuna's journal file. Returns the number of trials.

    The study has the sweep's name. Raises UserError if the file exists.
    """
    check_no_links(target)
    if target.exists():
        raise UserError(f"--out must name a new file, got {target}, which exists already")
    trials = []  # before a file is made, because the log may be damaged
    for trial in SweepRecord(folder, spec).trials.values():
        attributes = {"trial": trial.name, "seed": trial.seed, "status": trial.status.words}
        attributes |= {"reason": trial.reason} if trial.reason else {}
        trials.append(frozen(trial, spec.search.space, **attributes))
    partly = partial_of(target)
    remove(partly)  # of an export that was killed
    storage = JournalStorage(JournalFileBackend(str(partly)))
    study = optuna.create_study(storage=storage, study_name=folder.name, direction="maximize")
    study.add_trials(trials)
    move(partly, target)
    return len(trials)
