"""The limits of a sweep on its hours, on its device hours and on time without progress."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.tune import Callback
from ray.tune.experiment import Trial

from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.base.paths import trial_log
from mtcon_ray.spec.run_spec import RunSpec
from mtcon_ray.sweep.stop_request import Stop

LOOK_SECONDS = 1.0
# A sweep ends if no trial has run for this long while some wait for resources.
PLACEMENT_SECONDS = 900.0


class Limits(Callback):
    """Clock of a driver, and a Tune callback against time without progress.

    It ends the process of a trial without a new epoch for `search.stall_minutes`. Tune then tries
    the trial again. It stops a sweep if no trial can be placed.

    `spent` is the time of trials under earlier drivers of this sweep, in seconds. `waits` gets
    Tune's id of a running trial and returns True if the trial's workers wait for their nodes.
    `clock` returns seconds.
    """

    def __init__(
        self,
        folder: Path,
        spec: RunSpec,
        callbacks: Callbacks,
        stop: Stop,
        spent: float = 0.0,
        waits: Callable[[str], bool] = lambda _: False,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._search, self._resources = folder, spec.search, spec.resources
        self._callbacks, self._stop = callbacks, stop
        self._spent, self._waits, self._clock = spent, waits, clock
        self._begun = self._last_running = self._next_look = clock()
        self._live: dict[str, float] = {}  # start times by the trial's name
        self._seen: dict[str, tuple[int, float]] = {}  # by Tune's id: log size, time of progress
        self._reasons: dict[str, str] = {}  # by name, until the trial reports again

    def started(self, name: str) -> None:
        """Counts the time of a trial from now on."""
        self._live[name] = self._clock()

    def ended(self, name: str) -> None:
        """Stops counting the time of a trial, if it was counted."""
        now = self._clock()
        self._spent += now - self._live.pop(name, now)

    @property
    def exceeded(self) -> str | None:
        """The reached limit in hours, in words, or None below both limits."""
        now, search = self._clock(), self._search
        if search.max_hours is not None and now - self._begun >= 3600 * search.max_hours:
            return f"search.max_hours {search.max_hours:g} is reached"
        trials = self._spent + sum(now - begun for begun in self._live.values())
        limit = search.max_device_hours
        if limit is not None and self._resources.devices * trials >= 3600 * limit:
            return f"search.max_device_hours {limit:g} is reached, a resume needs a higher one"
        return None

    def reason_of(self, name: str) -> str | None:
        """Returns the reason why this callback ended the trial's last process, or None."""
        return self._reasons.get(name)

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Counts a result as progress."""
        self._seen.pop(trial.trial_id, None)
        if "epoch" in result:
            self._reasons.pop(trial.config["trial"], None)

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Checks the progress of all trials, once per LOOK_SECONDS: each check reads all trials."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        waiting = [trial for trial in trials if trial.status == Trial.PENDING]
        running = [trial for trial in trials if trial.status == Trial.RUNNING]
        if running or not waiting:
            self._last_running = now
        elif now - self._last_running > PLACEMENT_SECONDS:
            each = self._resources
            self._stop.ask(
                f"no trial could be placed for {PLACEMENT_SECONDS:.0f} s: "
                f"{waiting[0].config['trial']} waits for {each.cpus} CPUs and {each.gpus:g} GPUs "
                "per worker, which the cluster does not give"
            )
        if self._search.stall_minutes is not None:
            self._end_stalled(running, now, self._search.stall_minutes)

    def _end_stalled(self, running: list[Trial], now: float, minutes: float) -> None:
        """Ends trials if their event log, which has all epochs, has not grown for too long."""
        before, self._seen = self._seen, {}
        for trial in running:
            key, path = trial.trial_id, trial_log(self._folder, trial.config["trial"])
            size = path.stat().st_size if path.exists() else 0
            known, since = before.get(key, (size, now))
            is_late = now - since > 60 * minutes
            if size != known or (is_late and self._waits(key)):
                since, is_late = now, False
            if is_late:
                self._end(trial, minutes)
            else:
                self._seen[key] = size, since

    def _end(self, trial: Trial, minutes: float) -> None:
        name = trial.config["trial"]
        self._reasons[name] = reason = (
            f"no new epoch for {minutes:g} minutes (search.stall_minutes, which includes the start "
            "and compiling)"
        )
        again = "its process is ended; it is tried again up to search.max_failures times"
        self._callbacks.on_note(f"{name}: {reason}; {again}")
        if (actor := trial.temporary_state.ray_actor) is not None:
            ray.kill(actor)  # a stalled process cannot answer a request to end

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        """Pickles as an empty Callback, because Tune saves its callbacks but never loads them."""
        return Callback, ()
