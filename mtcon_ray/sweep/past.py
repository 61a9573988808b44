"""What earlier drivers of a sweep left behind, brought in order before a new one goes on."""

import optuna
from optuna.trial import FrozenTrial, TrialState

from mtcon_ray import metrics
from mtcon_ray.sweep.record import SweepRecord
from mtcon_ray.sweep.scheduler import History
from mtcon_ray.sweep.searcher import tell
from mtcon_ray.sweep.study import REASON, TRIAL, named_trials
from mtcon_ray.sweep.trial import Outcome

ENDS = {
    TrialState.COMPLETE: Outcome.FINISHED,
    TrialState.PRUNED: Outcome.PRUNED,
    TrialState.FAIL: Outcome.FAILED,
}


def settle(study: optuna.Study, record: SweepRecord) -> None:
    """Close in the study what only a kill left open.

    A trial that was recorded to its last epoch is finished though nobody was told; one that was
    suggested but never named was never trained.
    """
    for trial in named_trials(study):
        if trial.state in ENDS and record.spool(trial).events()[-1]["kind"] != "end":
            record.trial_ended(trial, ENDS[trial.state], trial.user_attrs.get(REASON))
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        if TRIAL not in trial.user_attrs:
            tell(study, trial, Outcome.FAILED, None, "its driver was killed as it was suggested")
            continue
        recorded = _recorded(record, trial)
        for epoch, value in sorted(recorded.items()):
            if epoch not in trial.intermediate_values:
                optuna.trial.Trial(study, trial._trial_id).report(value, step=epoch)
        last = record.epochs(trial)
        if last in recorded:
            tell(study, trial, Outcome.FINISHED, recorded[last], None)
            record.trial_ended(trial, Outcome.FINISHED, None)


def continued_trials(study: optuna.Study) -> list[FrozenTrial]:
    """Named trials that were interrupted, in order of suggestion."""
    running = study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
    return [t for t in running if TRIAL in t.user_attrs]


def close_waiting(study: optuna.Study, record: SweepRecord) -> None:
    """Record as interrupted the open trials whose record nobody has closed: those at a rung."""
    for trial in continued_trials(study):
        if record.spool(trial).events()[-1]["kind"] != "end":
            record.trial_ended(trial, Outcome.INTERRUPTED, None)


def history(trial: FrozenTrial, epochs: int) -> History:
    """A trial's validation accuracies by percent of its own epochs."""
    return [(round(100 * e / epochs, 6), v) for e, v in sorted(trial.intermediate_values.items())]


def _recorded(record: SweepRecord, trial: FrozenTrial) -> dict[int, float]:
    """Validation accuracies that the trial's process wrote down, by epoch."""
    return {
        event["epoch"]: event["metrics"][metrics.OBJECTIVE]
        for event in record.spool(trial).events()
        if event["kind"] == "report" and metrics.OBJECTIVE in event["metrics"]
    }
