"""The executor on Ray Tune: Tune's searcher, scheduler and callback only ask the driver."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune import Callback, Stopper
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import NoopStopper

from mtcon_ray.base.paths import attempt_folder, ray_log
from mtcon_ray.base.status import Status
from mtcon_ray.spec.resources import ResourcesSpec
from mtcon_ray.sweep.distributed_trial import (
    PlacementGroupCleanup,
    distributed_trial,
    driver_resources,
)
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.here import take
from mtcon_ray.sweep.lost_process import last_error
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.sweep.tune_private import retry_memory_kills

# Maximum number of trials that wait for their processes, or for new nodes of a cluster. With more
# waiting trials, the sampler would suggest trials without the values of running trials.
MAX_WAITING = 8
# Tune's alternative, `max_concurrent_trials`, also limits the running trials.
WAITING_VARIABLE = "TUNE_MAX_PENDING_TRIALS_PG"
LOOK_SECONDS = 1.0
# A sweep ends if no trial has run for this long while some wait for resources.
PLACEMENT_SECONDS = 900.0


def run_on_ray(driver: Driver, common: dict[str, Any], concurrency: int | None) -> None:
    """Trains the trials of a sweep until it is over or stopped.

    `common` is from `trial.common_config`, `concurrency` is the number of trials that fit, None if
    it is unknown. Raises StorageError if the event log cannot be written.
    """
    resources = driver.spec.resources
    is_distributed = resources.worker_range[1] > 1
    retry_memory_kills()
    let_trials_wait(resources, concurrency)
    groups = PlacementGroupCleanup()
    watch = Watch(driver, groups.waits if is_distributed else lambda _: False)
    folder = attempt_folder(driver.folder, common["attempt"])
    each = {"cpu": resources.cpus, "gpu": resources.gpus}
    tune.Tuner(
        tune.with_resources(distributed_trial, driver_resources())
        if is_distributed
        else tune.with_resources(ReusedTrainable, each),
        param_space={"common": common},
        tune_config=tune.TuneConfig(
            search_alg=TuneSearcher(driver, watch),
            scheduler=TuneScheduler(driver),
            num_samples=-1,
            reuse_actors=not is_distributed,
            trial_name_creator=_name,
            trial_dirname_creator=_name,
        ),
        run_config=tune.RunConfig(
            name=folder.name,
            storage_path=str(folder.parent),
            callbacks=[watch, groups],
            # The driver counts the losses of a trial's process and gives the trial out again.
            failure_config=tune.FailureConfig(max_failures=0),
            stop=TuneStopper(driver),
            verbose=0,
        ),
    ).fit()


def _name(trial: Any) -> str:
    return str(trial.config["trial"])


class TuneSearcher(Searcher):
    """Tune's searcher, which passes on the driver's trials and reports their ends."""

    def __init__(self, driver: Driver, watch: "Watch") -> None:
        super().__init__(metric="objective", mode="max")
        self._driver, self._watch = driver, watch
        self._live: dict[str, str] = {}  # names by Tune's id

    def suggest(self, trial_id: str) -> Any:
        """Returns the next trial's configuration, None while none can begin, or FINISHED."""
        if (task := self._driver.next()) is None:
            # After FINISHED, Tune does not ask again.
            return str(Searcher.FINISHED) if self._driver.is_over else None
        self._live[trial_id] = task.trial
        return vars(task)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Passes the end of a trial to the driver."""
        # Tune reports the loss of a process that has just got another trial twice.
        if (name := self._live.pop(trial_id, None)) is None:
            return
        if result:
            take(self._driver, name, result)
        if error or (result and "lost" in result):
            reason = result["lost"] if result and "lost" in result else self._watch.error_of(name)
            self._driver.lost(name, f"{reason} (log: {ray_log(self._driver.folder)})")
            return
        found = result or {}
        outcome = Status(found.get("outcome", Status.RUNNING))
        self._driver.ended(name, outcome, found.get("reason"))

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        """Pickles as an empty Searcher, because Tune saves its searcher but never loads it."""
        return Searcher, ()

    def save(self, checkpoint_path: str) -> None:
        """Saves nothing: the event log is the state."""


class TuneScheduler(FIFOScheduler):
    """Tune's scheduler, which asks the driver after each result."""

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Passes a result to the driver and returns its decision."""
        goes_on = take(self._driver, _name(trial), result)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def __reduce__(self) -> tuple[type[FIFOScheduler], tuple[()]]:
        """Pickles as another scheduler, because Tune saves its scheduler but never loads it."""
        return FIFOScheduler, ()


class TuneStopper(Stopper):
    """Tune's stopper, which ends all trials once the time for their checkpoints is over."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Returns False: single trials end by themselves."""
        return False

    def stop_all(self) -> bool:
        """Returns True to end all trials."""
        return self._driver.stop.is_due

    def __reduce__(self) -> tuple[type[NoopStopper], tuple[()]]:
        """Pickles as another stopper, because Tune saves its stopper but never loads it."""
        return NoopStopper, ()


class Watch(Callback):
    """Tune's callback against time without progress, called in each iteration of Tune's loop.

    It ends the process of a trial without a new epoch for `search.stall_minutes`, and stops a sweep
    if no trial can be placed. `waits` gets Tune's id of a running trial and returns True if the
    trial's workers wait for their nodes.
    """

    def __init__(
        self,
        driver: Driver,
        waits: Callable[[str], bool],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._driver, self._waits, self._clock = driver, waits, clock
        self._last_running = self._next_look = clock()
        self._trials: list[Trial] = []
        self._reasons: dict[str, str] = {}  # of ended processes, by the trial's name

    def error_of(self, name: str) -> str:
        """Returns the reason for the loss of a trial's process as a single line.

        Tune writes the error file before it calls the searcher with the failure.
        """
        if reason := self._reasons.pop(name, None):
            return reason
        found = (t.error_file for t in reversed(self._trials) if t.config.get("trial") == name)
        file = next(found, None)
        if not file or not Path(file).exists():
            return "its process was lost"
        return last_error(Path(file).read_text(encoding="utf-8", errors="replace"))

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Keeps Tune's own list, which also has trials without a started process."""
        self._trials = trials

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Checks the progress of all trials, once per LOOK_SECONDS: each check reads all trials."""
        now = self._clock()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        self._driver.tick()
        waiting = [trial for trial in trials if trial.status == Trial.PENDING]
        running = [trial for trial in trials if trial.status == Trial.RUNNING]
        if running or not waiting:
            self._last_running = now
        elif now - self._last_running > PLACEMENT_SECONDS:
            each = self._driver.spec.resources
            self._driver.halt(
                f"no trial could be placed for {PLACEMENT_SECONDS:.0f} s: {_name(waiting[0])} "
                f"waits for {each.cpus} CPUs and {each.gpus:g} GPUs per worker, which the cluster "
                "does not give"
            )
        limits = self._driver.limits
        for name in [_name(trial) for trial in waiting]:
            limits.progressed(name)
        stalled = set(limits.stalled())
        for trial in running:
            if (name := _name(trial)) not in stalled:
                continue
            limits.progressed(name)
            if not self._waits(trial.trial_id):
                self._end(trial, limits.stall_reason)

    def _end(self, trial: Trial, reason: str) -> None:
        self._reasons[_name(trial)] = reason
        if (actor := trial.temporary_state.ray_actor) is not None:
            ray.kill(actor)  # a stalled process cannot answer a request to end

    def __reduce__(self) -> tuple[type[Callback], tuple[()]]:
        """Pickles as an empty Callback, because Tune saves its callbacks but never loads them."""
        return Callback, ()


def let_trials_wait(resources: ResourcesSpec, concurrency: int | None) -> None:
    """Lets several trials wait for their processes, until `connected` restores the environment.

    With a custom searcher, Tune otherwise lets a single trial wait. A trial then starts after the
    process of the previous trial, which takes 5 to 10 seconds, or minutes if a cluster must first
    add a node. `concurrency` is the number of trials that fit. A single trial waits if this number
    is unknown (None), or if trials are elastic, because an elastic trial takes all workers left by
    earlier trials. The user's setting of the variable has priority.
    """
    low, high = resources.worker_range
    most = min(MAX_WAITING, concurrency or 1) if low == high else 1
    os.environ.setdefault(WAITING_VARIABLE, str(most))
