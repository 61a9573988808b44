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
    """Makes Tune try a trial again in two cases in which it does not."""
    _retry_lost_resets()
    _retry_memory_kills()


def _retry_memory_kills() -> None:
    """For a process that Ray has killed because its node ran low on memory.

    Of all errors of a lost process, Ray's for this one is not an error of an actor, and Tune ends
    the whole experiment. It gets one of an actor instead.
    """
    failed = RayActorManager._actor_task_failed

    def handle(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        failed(self, tracked_actor_task, _as_lost(exception))

    RayActorManager._actor_task_failed = handle  # type: ignore[method-assign]


def _as_lost(exception: Exception) -> Exception:
    """Returns the error of an actor for one of memory, whose dozens of lines are left out."""
    if not isinstance(exception, OutOfMemoryError):
        return exception
    first, *_ = str(exception).splitlines()
    return RayActorError(error_msg=f"{first}; {MEMORY_HINT}")


def _retry_lost_resets() -> None:
    """For a reused process that is lost before it has begun the trial.

    Until then the trial is pending, and Tune handles the loss twice: as the process's it puts the
    trial back, as the task's it finds a pending trial and ends it, whatever `max_failures` says. A
    loss in the training is handled as the task's alone, since the trial is running. So it is here.
    """
    failed = TuneController._actor_failed

    def handle(self: Any, tracked_actor: Any, exception: Exception) -> None:
        trial = self._actor_to_trial[tracked_actor]
        if trial in self._resetting_trials:
            # Else Tune would wait for the end of this reset before it starts the trial elsewhere.
            self._resetting_trials.remove(trial)
            self._unstage_trial_with_resources(trial)
            self._set_trial_status(trial, Trial.RUNNING)
        failed(self, tracked_actor, _as_lost(exception))

    TuneController._actor_failed = handle  # type: ignore[method-assign]


def worker_callback(act: Callable[[], None]) -> Any:
    """Returns a callback of Ray Train that calls `act` in the main thread of each worker.

    Python sets signal handlers in the main thread alone, and Train calls the training function in
    another one. Its public callbacks run in the controller.
    """
    # Imported here because ray.train takes seconds to import.
    from ray.train.v2._internal.execution.callback import WorkerCallback

    class Start(WorkerCallback):
        def after_init_train_context(self) -> None:
            act()

    return Start()


def error_raised_by(failure: Exception) -> Exception:
    """Returns the error that a worker of Ray Train raised, out of Train's wrapper around it."""
    error: Exception = getattr(failure, "_base_exc", failure)
    return error
