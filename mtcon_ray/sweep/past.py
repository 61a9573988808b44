"""What earlier drivers of a sweep left behind, brought in order before a new one goes on."""

import optuna
from optuna.trial import FrozenTrial, TrialState

from mtcon_ray import metrics
from mtcon_ray.evaluation.spec import selected_value
from mtcon_ray.results import trial_status
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.scheduler import History
from mtcon_ray.sweep.searcher import report_missing, tell
from mtcon_ray.sweep.study import REASON, REPEAT, TRIAL, named_trials, stored, trial_name
from mtcon_ray.sweep.trial import Outcome
from mtcon_ray.tracking.event_log import EventLog
from mtcon_ray.tracking.events import Ended, Reported, Started
from mtcon_ray.training.checkpoint import discard_resume_state

ENDS = {
    TrialState.COMPLETE: Outcome.FINISHED,
    TrialState.PRUNED: Outcome.PRUNED,
    TrialState.FAIL: Outcome.FAILED,
}


def settle(study: optuna.Study, record: SweepRecord) -> None:
    """Close in the study what only a kill left open, and restore what a torn journal has lost.

    A trial that was recorded to its last epoch is finished, even if the study does not say so. One
    that was suggested but never named was never trained, unless the line that named it is lost.
    """
    for trial in named_trials(study):
        if trial.state not in ENDS:
            continue
        if not record.spool(trial).events():  # lost: an end needs a beginning
            record.trial_started(trial)
        if _is_open(record, trial):
            record.trial_ended(trial, ENDS[trial.state], trial.user_attrs.get(REASON))
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if TRIAL in trial.user_attrs or _restore_name(study, trial, record):
            _settle_open(study, stored(study, trial._trial_id), record)
        else:
            tell(study, trial, Outcome.FAILED, None, "its driver was killed as it was suggested")


def _restore_name(study: optuna.Study, trial: FrozenTrial, record: SweepRecord) -> bool:
    """Gives a trial the name that its record has; returns False if it has begun no record."""
    name = trial_name(len(named_trials(study)))
    begun = EventLog.read(record.spool_of(name))
    if (
        not begun
        or not isinstance(begun[0], Started)
        or begun[0].params != trial.params
        or REPEAT not in trial.user_attrs
    ):
        return False
    optuna.trial.Trial(study, trial._trial_id).set_user_attr(TRIAL, name)
    return True


def _settle_open(study: optuna.Study, trial: FrozenTrial, record: SweepRecord) -> None:
    recorded = recorded_values(record, trial)
    report_missing(study, trial, recorded)
    values = trial.intermediate_values | recorded
    final = selected_value(values, record.spec.evaluate.select)
    events = record.spool(trial).events()
    status, reason = trial_status(events) if events else ("RUNNING", None)
    if status in ("FINISHED", "PRUNED", "FAILED"):
        tell(study, trial, Outcome[status], final, reason)
    elif record.epochs(trial) in recorded:
        tell(study, trial, Outcome.FINISHED, final, None)
        record.trial_ended(trial, Outcome.FINISHED, None)


def discard_leftovers(study: optuna.Study, record: SweepRecord) -> None:
    """Remove resume states of ended trials; all processes of trials must have ended.

    Workers of a multi-worker trial that Tune stops train on until they are ended, and may write
    one after the trial's own was removed.
    """
    for trial in named_trials(study):
        if trial.state in ENDS:
            discard_resume_state(record.checkpoints(trial))


def continued_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Named trials that were interrupted, in order of suggestion."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [t for t in running if TRIAL in t.user_attrs]


def close_waiting(study: optuna.Study, record: SweepRecord) -> None:
    """Record as interrupted the open trials whose record nobody has closed: those at a rung."""
    for trial in continued_trials(study):
        if _is_open(record, trial):
            record.trial_ended(trial, Outcome.INTERRUPTED, None)


def history(trial: FrozenTrial, epochs: int) -> History:
    """A trial's validation accuracies by percent of its own epochs."""
    return [(round(100 * e / epochs, 6), v) for e, v in sorted(trial.intermediate_values.items())]


def _is_open(record: SweepRecord, trial: FrozenTrial) -> bool:
    """Returns True if a trial's record has begun and no end closes it."""
    events = record.spool(trial).events()
    return bool(events) and not isinstance(events[-1], Ended)


def recorded_values(record: SweepRecord, trial: FrozenTrial) -> dict[int, float]:
    """Returns the values of the objective that the trial's process wrote down, by epoch."""
    reports = [event for event in record.spool(trial).events() if isinstance(event, Reported)]
    probed = {event.epoch: metrics.objective(event.metrics) for event in reports}
    return {epoch: value for epoch, value in probed.items() if value is not None}
