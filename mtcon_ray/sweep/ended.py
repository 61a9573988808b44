"""A sweep with all trials ended: its resume needs no Ray."""

from pathlib import Path

from optuna.trial import TrialState

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import SPEC_FILE, journal_file, parent_log
from mtcon_ray.base.status import Status
from mtcon_ray.display.build import build_report
from mtcon_ray.records.event_log import EventLog
from mtcon_ray.records.recorded import load_recorded
from mtcon_ray.records.results import SweepResults, load_sweep, trial_status
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, with_scheduler
from mtcon_ray.sweep.audit import Audit
from mtcon_ray.sweep.study import named_trials, read_study
from mtcon_ray.tracking.lifecycle import Lifecycle
from mtcon_ray.tracking.mlflow_server import ui_command


def ended_results(
    folder: Path, spec: RunSpec, uri: str, callbacks: Callbacks, *, again: bool
) -> SweepResults | None:
    """Returns the results of a sweep with all trials ended, and builds its report again.

    Also sends the events missing in MLflow. `spec` has its scheduler. Returns None if anything else
    is left to do: planned or open trials, with `again` also failed trials, a spec other than the
    recorded spec, or contradictory records.
    """
    recorded, events = load_recorded(folder / SPEC_FILE), EventLog.read(parent_log(folder))
    if dump_spec(with_scheduler(recorded)) != dump_spec(spec) or not events:
        return None
    if trial_status(events)[0] not in (Status.FINISHED, Status.FAILED):
        return None
    study = read_study(journal_file(folder), folder.name)
    trials = named_trials(study)
    to_do = {TrialState.RUNNING, *([TrialState.FAIL] if again else [])}
    planned = spec.search.num_planned_trials
    if len(trials) < planned or any(trial.state in to_do for trial in trials):
        return None
    if Audit(folder).records():
        return None
    callbacks.on_note(f"{folder.name} has ended already, with all its trials")
    Lifecycle(folder, spec.tracking, uri, callbacks).send_rest()
    results = load_sweep(folder)
    build_report(results, ui_command=ui_command(uri))
    return results
