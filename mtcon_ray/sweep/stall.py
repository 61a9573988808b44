"""The limit on the time between two epochs of a trial, `search.stall_minutes`."""

import time
from pathlib import Path
from typing import Any

import ray
from ray.tune import Callback
from ray.tune.experiment import Trial

from mtcon_ray.callbacks import Callbacks
from mtcon_ray.paths import trial_log
from mtcon_ray.spec import RunSpec
from mtcon_ray.sweep.distributed_trial import PLACEMENT_GROUP, is_placed

LOOK_SECONDS = 1.0


class StallLimit(Callback):
    """Tune's callback that ends the process of a trial without a new epoch for too long.

    Tune then tries the trial again, as after the loss of its process. The time counts while the
    trial has a process; for a distributed trial from its workers' first result, and only while they
    have their nodes. It starts again with each line of the trial's event log, which has all epochs,
    and with each result. Without a limit nothing is ended.
    """

    def __init__(self, folder: Path, spec: RunSpec, callbacks: Callbacks) -> None:
        self._folder = folder
        self._minutes = spec.search.stall_minutes
        self._distributed = spec.resources.worker_range[1] > 1
        self._callbacks = callbacks
        self._next_look = 0.0
        self._groups: dict[str, str] = {}  # by Tune's id: the placement group of the workers
        self._seen: dict[str, tuple[int, float]] = {}  # by Tune's id: log size, time of progress
        self._reasons: dict[str, str] = {}  # by name, until the trial reports again

    def reason_of(self, name: str) -> str | None:
        """Returns why the trial's last process was ended, None if it was not ended here."""
        return self._reasons.get(name)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Counts a result as progress."""
        self._seen.pop(trial.trial_id, None)
        if PLACEMENT_GROUP in result:
            self._groups[trial.trial_id] = result[PLACEMENT_GROUP]
        if "epoch" in result:
            self._reasons.pop(trial.config["trial"], None)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Ends trials without progress; checks once per LOOK_SECONDS."""
        now = time.monotonic()
        if self._minutes is None or now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        running = {trial.trial_id: trial for trial in trials if trial.status == Trial.RUNNING}
        self._seen = {key: seen for key, seen in self._seen.items() if key in running}
        for key, trial in running.items():
            path = trial_log(self._folder, trial.config["trial"])
            size = path.stat().st_size if path.exists() else 0
            before, since = self._seen.setdefault(key, (size, now))
            if size != before or (now - since > 60 * self._minutes and self._waits(trial)):
                self._seen[key] = size, now
            elif now - since > 60 * self._minutes:
                del self._seen[key]
                self._end(trial)

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        """Pickles as an empty Callback: Tune saves its callbacks, which nothing reads back."""
        return Callback, ()

    def _waits(self, trial: Trial) -> bool:
        """Returns True if a distributed trial waits for nodes for its workers."""
        group = self._groups.get(trial.trial_id)
        return self._distributed and (group is None or not is_placed(group))

    def _end(self, trial: Trial) -> None:
        name = trial.config["trial"]
        self._reasons[name] = reason = (
            f"no new epoch for {self._minutes:g} minutes (search.stall_minutes, which includes the "
            "start and compiling)"
        )
        again = "its process is ended; it is tried again up to search.max_failures times"
        self._callbacks.on_note(f"{name}: {reason}; {again}")
        actor = trial.temporary_state.ray_actor
        if actor is not None:
            # Kills the process, which could not answer.
            ray.kill(actor)
