"""Every use of private interfaces of Ray Tune and Ray Train, checked against Ray 2.60.

Each function says why the public interface does not suffice. An upgrade of Ray begins here and in
`mtcon_ray/cluster/ray_private.py`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import OutOfMemoryError, RayActorError
from ray.train.v2._internal.execution.callback import WorkerCallback

MEMORY_HINT = "lower search.max_concurrent, or end other programs there"


@cache
def retry_memory_kills() -> None:
    """Makes Tune handle Ray's kill of a process on a node that ran low on memory as a lost process.

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


def worker_callback(act: Callable[[], None]) -> Any:
    """Returns a callback of Ray Train that calls `act` in the main thread of each worker.

    Python sets signal handlers only in the main thread, and Train calls the training function in
    another thread. Train's public callbacks run in the controller.
    """

    class Start(WorkerCallback):
        def after_init_train_context(self) -> None:
            act()

    return Start()


def error_raised_by(failure: Exception) -> Exception:
    """Returns the error raised by a worker of Ray Train, out of Train's wrapper."""
    error: Exception = getattr(failure, "_base_exc", failure)
    return error
