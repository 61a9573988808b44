"""The executor on Ray Tune: Tune's searcher, scheduler and callback only ask the driver."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import cloudpickle, tune
from ray.tune import Callback
from ray.tune.experiment import Trial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher
from ray.tune.stopper import NoopStopper

from mtcon_ray.base.paths import RAY_LOG, attempt_folder
from mtcon_ray.base.status import Status
from mtcon_ray.cluster.ray_private import count_errors_as_losses
from mtcon_ray.cluster.ray_start import ending_with_ray
from mtcon_ray.errors import PreemptedError, storage_error
from mtcon_ray.sweep import distributed_trial as distributed
from mtcon_ray.sweep.driver import Driver
from mtcon_ray.sweep.here import take
from mtcon_ray.sweep.register import Register
from mtcon_ray.sweep.trainable import ReusedTrainable

# Maximum number of trials that wait for their processes, or for new nodes of a cluster. With more
# waiting trials, the sampler would suggest trials without the values of running trials.
MAX_WAITING = 8
# Tune's alternative, `max_concurrent_trials`, also limits the running trials.
WAITING_VARIABLE = "TUNE_MAX_PENDING_TRIALS_PG"
# A sweep ends after this many unexpected errors of Tune's loop without an epoch between them.
MAX_ENTRIES = 3
# A sweep ends if no trial has run for this long while some wait for resources.
PLACEMENT_SECONDS = 900.0


def train_on_ray(
    driver: Driver,
    common: Callable[[str], dict[str, Any]],
    concurrency: int | None,
    tell_end: Callable[[str], None],
) -> None:
    """Trains the trials of a sweep until it is over or stopped.

    `common` gets the name of the register and returns the configuration of a new attempt, see
    `Assignment.read`. `concurrency` is the number of trials that fit, None if it is unknown.
    `tell_end` gets the reason before the end of a local Ray ends this process.
    After an unexpected error of Tune's loop, it ends all processes of the loop and enters it again.
    Raises the error after MAX_ENTRIES entries without an epoch, and StorageError if the event log
    cannot be written.
    """
    with ending_with_ray(tell_end):
        num_entries, register = 0, Register()
        while not driver.is_over:
            before, num_entries = _num_epochs(driver), num_entries + 1
            try:
                return _enter_tune(driver, common(register.name), register, concurrency)
            except Exception as error:
                num_entries = 0 if _num_epochs(driver) > before else num_entries
                disk = storage_error(error)
                if disk or not driver.stopping:  # else trials write their checkpoints
                    register.end()
                if disk or driver.stopping or num_entries == MAX_ENTRIES:
                    raise
                driver.release(distributed.error_line(error))


def _num_epochs(driver: Driver) -> int:
    return sum(trial.last_epoch for trial in driver.trials)


def _enter_tune(
    driver: Driver, common: dict[str, Any], register: Register, concurrency: int | None
) -> None:
    resources = driver.spec.resources
    is_distributed = resources.worker_range[1] > 1
    count_errors_as_losses()
    # With a custom searcher, Tune otherwise lets a single trial wait. A trial then starts after the
    # process of the previous trial, which takes seconds, or minutes if a cluster must first add a
    # node. An elastic trial takes all workers left by earlier trials, so only one waits. The user's
    # setting of the variable has priority. `connected` restores the environment.
    is_elastic = len(set(resources.worker_range)) > 1
    most = 1 if is_elastic else min(MAX_WAITING, concurrency or 1)
    os.environ.setdefault(WAITING_VARIABLE, str(most))
    groups = distributed.PlacementGroupCleanup()
    scheduler = TuneScheduler(driver)
    watch = Watch(driver, register, groups.waits if is_distributed else lambda _: False)
    folder = attempt_folder(driver.folder, common["attempt"])
    each = {"cpu": resources.cpus, "gpu": resources.gpus}
    tune.Tuner(
        tune.with_resources(distributed.distributed_trial, distributed.driver_resources())
        if is_distributed
        else tune.with_resources(ReusedTrainable, each),
        param_space={"common": common},
        tune_config=tune.TuneConfig(
            search_alg=TuneSearcher(driver, watch),
            scheduler=scheduler,
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
            # Other nodes may not see Tune's folder, and its checkpoints would be empty.
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            stop=scheduler,
            verbose=0,
        ),
    ).fit()


def _name(trial: Any) -> str:
    return str(trial.config["trial"])


def _pickled_as(kind: type) -> Any:
    """Returns a `__reduce__` that pickles as a new `kind`: Tune saves its parts, but loads none."""
    return lambda _: (kind, ())


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
        result = result or {}
        if result:
            take(self._driver, name, result)
        if error or "lost" in result:
            reason, preempted = self._watch.loss_of(name, result)
            text = f"{reason} (log: {self._driver.folder / RAY_LOG})"
            # Told to a driver that lives, the loss of the driver was only a late answer.
            is_false = PreemptedError.__name__ in reason
            return self._driver.lost(name, text, counts=not (preempted or is_false))
        outcome = Status(result.get("outcome", Status.RUNNING))
        self._driver.ended(name, outcome, result.get("reason"))

    __reduce__ = _pickled_as(Searcher)

    def save(self, checkpoint_path: str) -> None:
        """Saves nothing: the event log is the state."""


class TuneScheduler(FIFOScheduler, NoopStopper):
    """Tune's scheduler, which asks the driver after each result.

    It is also Tune's stopper, which ends all trials once the time for their checkpoints is over.
    """

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Passes a result to the driver and returns its decision."""
        goes_on = take(self._driver, _name(trial), result)
        return str(TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP)

    def stop_all(self) -> bool:
        """Returns True to end all trials."""
        return time.monotonic() > self._driver.deadline

    __reduce__ = _pickled_as(FIFOScheduler)


def _content(file: str | None) -> bytes:
    return Path(file).read_bytes() if file and Path(file).exists() else b""


class Watch(Callback):
    """Tune's callback against time without progress, called in each iteration of Tune's loop.

    It ends the process of a trial without a new epoch for `search.stall_minutes`, and stops a sweep
    if no trial can be placed. `waits` gets Tune's id of a running trial and returns True if the
    trial's workers wait for their nodes.
    """

    def __init__(self, driver: Driver, register: Register, waits: Callable[[str], bool]) -> None:
        self._driver, self._register, self._waits = driver, register, waits
        self._last_running = time.monotonic()
        self._trials: list[Trial] = []
        self._reasons: dict[str, str] = {}  # of ended processes, by the trial's name

    def loss_of(self, name: str, result: dict[str, Any]) -> tuple[str, bool]:
        """Returns the reason for the loss of a trial's process as a single line.

        Also returns True if its node was preempted. Tune writes the error before it calls the
        searcher with the failure.
        """
        if reason := self._reasons.pop(name, None):
            return reason, False
        if "lost" in result:
            return result["lost"], result["preempted"]
        trial = next((t for t in reversed(self._trials) if t.config.get("trial") == name), None)
        # Of Ray's own session, closed to others. One is missing for a process that has not begun.
        names = "error_file", "pickled_error_file"
        text, pickled = (_content(getattr(trial, name, None)) for name in names)
        error = cloudpickle.loads(pickled) if pickled else None
        reason = distributed.last_error(text.decode(errors="replace"))
        return reason, distributed.is_preempted(error)

    def on_step_begin(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Checks the progress of all trials."""
        # Tune's own list, which also has trials without a started process.
        self._trials, now = trials, time.monotonic()
        self._driver.record.log.tick()
        if self._driver.stopping:
            self._register.stop()
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
        for trial in waiting:
            self._driver.progressed(_name(trial))
        for trial in running:
            if not self._driver.has_stalled(name := _name(trial)):
                continue
            self._driver.progressed(name)
            if not self._waits(trial.trial_id):
                self._reasons[name] = (
                    f"no new epoch for {self._driver.spec.search.stall_minutes:g} minutes "
                    "(search.stall_minutes, which includes the start and compiling)"
                )
                self._register.end(name)

    __reduce__ = _pickled_as(Callback)
