"""Every use of private interfaces of Ray Tune and Ray Train, checked against Ray 2.60.

Each function says why the public interface does not suffice. An upgrade of Ray begins here and in
`mtcon_ray/cluster/ray_private.py`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial

MEMORY_HINT = "lower search.max_concurrent, or end other programs there"


@cache
def retry_lost_processes() -> None:
    """Makes Tune retry a trial in two further cases."""
    _retry_lost_resets()
    _retry_memory_kills()


def _retry_memory_kills() -> None:
    """Makes Tune retry a trial after Ray killed its process because the node ran low on memory.

    Ray's error for this kill is the only error of a lost process that is not an actor's error, and
    Tune would end the whole experiment. It gets an actor's error instead.
    """
    failed = RayActorManager._actor_task_failed

    def handle(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        failed(self, tracked_actor_task, _as_lost(exception))

    RayActorManager._actor_task_failed = handle  # type: ignore[method-assign]


def _as_lost(exception: Exception) -> Exception:
    """Returns an actor's error for a memory error, without the dozens of lines of its text."""
    if not isinstance(exception, OutOfMemoryError):
        return exception
    first, *_ = str(exception).splitlines()
    return RayActorError(error_msg=f"{first}; {MEMORY_HINT}")


def _retry_lost_resets() -> None:
    """Makes Tune retry a trial if a reused process is lost before it begins the trial.

    Until then the trial is pending, and Tune handles the loss twice. As a loss of the process it
    puts the trial back. As a loss of the task it ends the pending trial, despite `max_failures`.
    For a running trial, Tune handles only the loss of the task. This patch does the same here.
    """
    failed = TuneController._actor_failed

    def handle(self: Any, tracked_actor: Any, exception: Exception) -> None:
        trial = self._actor_to_trial[tracked_actor]
        if trial in self._resetting_trials:
            # Otherwise Tune would wait for the end of this reset before it retries the trial.
            self._resetting_trials.remove(trial)
            self._unstage_trial_with_resources(trial)
            self._set_trial_status(trial, Trial.RUNNING)
        failed(self, tracked_actor, _as_lost(exception))

    TuneController._actor_failed = handle  # type: ignore[method-assign]


def worker_callback(act: Callable[[], None]) -> Any:
    """Returns a callback of Ray Train that calls `act` in the main thread of each worker.

    Python sets signal handlers only in the main thread, and Train calls the training function in
    another thread. Train's public callbacks run in the controller.
    """
    # Imported here because ray.train takes seconds to import.
    from ray.train.v2._internal.execution.callback import WorkerCallback

    class Start(WorkerCallback):
        def after_init_train_context(self) -> None:
            act()

    return Start()


def error_raised_by(failure: Exception) -> Exception:
    """Returns the error raised by a worker of Ray Train, out of Train's wrapper."""
    error: Exception = getattr(failure, "_base_exc", failure)
    return error
