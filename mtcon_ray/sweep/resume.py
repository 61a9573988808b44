"""Resume of a sweep: reconciles the study with the event logs of earlier drivers."""

import optuna
from optuna.trial import FrozenTrial, TrialState

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import trial_log
from mtcon_ray.base.status import Status
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.events import Ended, Started, last_change
from mtcon_ray.records.results import trial_status
from mtcon_ray.spec.evaluate import selected_value
from mtcon_ray.spec.schedulers import History
from mtcon_ray.sweep.optuna_private import reloaded, writable
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.searcher import report_missing, tell
from mtcon_ray.sweep.study import (
    REASON,
    REPEAT,
    TRIAL,
    named_trials,
    open_again,
    trial_name,
)
from mtcon_ray.training.checkpoint import discard_resume_state

ENDS = {
    TrialState.COMPLETE: Status.FINISHED,
    TrialState.PRUNED: Status.PRUNED,
    TrialState.FAIL: Status.FAILED,
}


def tell_known(
    trial: FrozenTrial,
    record: SweepRecord,
    callbacks: Callbacks,
    value: float | None,
    *,
    waits: bool,
) -> None:
    """Reports the state of a resumed sweep's trial to the callbacks."""
    outcome = ENDS.get(trial.state, Status.WAITING if waits else Status.INTERRUPTED)
    callbacks.on_known(
        trial.user_attrs[TRIAL], trial.params, outcome.name, record.spool(trial).last_epoch,
        record.epochs(trial), value, trial.user_attrs.get(REASON),
    )  # fmt: skip


def settle(study: optuna.Study, record: SweepRecord) -> None:
    """Reconciles the study with the event logs after a kill or a loss of journal lines.

    A trial with its last epoch in the event log becomes finished in the study. A suggested trial
    without a name was never trained and becomes failed. If it has an event log, only the line with
    its name was lost, and the name is restored.
    """
    for trial in named_trials(study):
        if trial.state not in ENDS:
            continue
        if not record.spool(trial).events():
            record.trial_started(trial)  # the log was lost: an end event needs a start event
        if _is_open(record, trial):
            record.trial_ended(trial, ENDS[trial.state], trial.user_attrs.get(REASON))
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if TRIAL in trial.user_attrs or _restore_name(study, trial, record):
            _settle_open(study, reloaded(study, trial), record)
        else:
            tell(study, trial, Status.FAILED, None, "its driver was killed as it was suggested")


def _restore_name(study: optuna.Study, trial: FrozenTrial, record: SweepRecord) -> bool:
    """Restores a trial's name from its event log. Returns False without such a log."""
    name = trial_name(len(named_trials(study)))
    begun = EventLog.read(trial_log(record.folder, name))
    match begun[:1]:
        case [Started(params=trial.params)] if REPEAT in trial.user_attrs:
            writable(study, trial).set_user_attr(TRIAL, name)
            return True
    return False


def _settle_open(study: optuna.Study, trial: FrozenTrial, record: SweepRecord) -> None:
    recorded = record.values(trial)
    report_missing(study, trial, recorded)
    values = trial.intermediate_values | recorded
    final = selected_value(values, record.spec.evaluate.select)
    events = record.spool(trial).events()
    status, reason = trial_status(events) if events else (Status.RUNNING, None)
    if status.is_final:
        tell(study, trial, status, final, reason)
    elif record.epochs(trial) in recorded:
        tell(study, trial, Status.FINISHED, final, None)
        record.trial_ended(trial, Status.FINISHED, None)


def retry_failed(study: optuna.Study, record: SweepRecord) -> list[str]:
    """Opens the failed trials again and returns their names. Call it after `settle`.

    The trials are trained from the start, because failed trials have no resume state. Their event
    logs continue, and epochs in a log are not recorded again. A trial finished without a finite
    value is left out, because it would end in the same way.
    """
    names = []
    for trial in named_trials(study):
        if trial_status(record.spool(trial).events())[0] is Status.FAILED:
            discard_resume_state(record.checkpoints(trial))
            open_again(study, trial, record.values(trial))
            record.trial_started(trial)  # without it `settle` would take the retry for the failure
            names.append(trial.user_attrs[TRIAL])
    return names


def discard_leftovers(study: optuna.Study, record: SweepRecord) -> None:
    """Removes resume states of ended trials. All processes of trials must have ended.

    When Tune stops a distributed trial, its workers train until their processes end. They may write
    a resume state after the trial's own was removed.
    """
    for trial in named_trials(study):
        if trial.state in ENDS:
            discard_resume_state(record.checkpoints(trial))


def continued_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Returns the interrupted trials with a name, in order of suggestion."""
    return [t for t in named_trials(study) if t.state is TrialState.RUNNING]


def close_waiting(study: optuna.Study, record: SweepRecord) -> None:
    """Records an interruption for open trials without an end event, which wait at a rung."""
    for trial in continued_trials(study):
        if _is_open(record, trial):
            record.trial_ended(trial, Status.INTERRUPTED, None)


def history(trial: FrozenTrial, epochs: int) -> History:
    """Returns a trial's validation accuracies by percent of its own epochs."""
    return [(round(100 * e / epochs, 6), v) for e, v in sorted(trial.intermediate_values.items())]


def _is_open(record: SweepRecord, trial: FrozenTrial) -> bool:
    """Returns True if a trial's event log has events and its last change is not an end."""
    events = record.spool(trial).events()
    return bool(events) and not isinstance(last_change(events), Ended)
