"""Every use of private interfaces of Ray Tune and Ray Train, checked against Ray 2.60.

Each function says why the public interface does not suffice. An upgrade of Ray begins here and in
`mtcon_ray/cluster/ray_private.py`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import ray
from ray._private import state
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


def actor_of_trial(trial: Any) -> Any:
    """Returns the handle of a Tune trial's actor, None while it has none.

    Tune's public interface can end a trial, but not its process alone so that it is tried again.
    """
    return trial.temporary_state.ray_actor


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


def elastic_trainer(
    usable: Callable[[int], int], may_resize: Callable[[], bool], **options: Any
) -> Any:
    """Returns Ray Train's TorchTrainer with rules for the number of workers, if it is a range.

    Of n possible workers it takes `usable(n)`. A running group of workers is replaced by one of
    another size once `may_resize()` returns True. Train has no options for either. It also counts
    nodes that are gone or about to go, and would wait a minute for them.
    """
    # Imported here because ray.train takes seconds to import.
    from ray.train.torch import TorchTrainer
    from ray.train.v2._internal.execution.scaling_policy import ElasticScalingPolicy, NoopDecision

    class Policy(ElasticScalingPolicy):
        _wanted: Any = None

        def _count_possible_workers(self, reserved_resources: Any) -> int:
            gone = state.state.get_draining_nodes()
            stay = {n["NodeID"] for n in ray.nodes() if n["Alive"]} - gone.keys()
            left = {node: has for node, has in reserved_resources.items() if node in stay}
            return usable(super()._count_possible_workers(left))

        def make_decision_for_non_running_worker_group(self) -> Any:
            self._wanted = None
            return super().make_decision_for_non_running_worker_group()

        def make_decision_for_running_worker_group(self, *args: Any, **named: Any) -> Any:
            decide = super().make_decision_for_running_worker_group
            wanted = self._wanted or decide(*args, **named)
            if isinstance(wanted, NoopDecision):
                return wanted
            is_allowed = may_resize()
            self._wanted = None if is_allowed else wanted
            return wanted if is_allowed else NoopDecision()

    class Trainer(TorchTrainer):
        # mypy sees the types of Train's first version.
        def _initialize_and_run_controller(self, **parts: Any) -> Any:
            scaling: Any = self.scaling_config
            if scaling.elasticity_enabled:
                parts["scaling_policy"] = Policy(scaling)
            return super()._initialize_and_run_controller(**parts)  # type: ignore[misc]

    return Trainer(**options)


def error_raised_by(failure: Exception) -> Exception:
    """Returns the error that a worker of Ray Train raised, out of Train's wrapper around it."""
    error: Exception = getattr(failure, "_base_exc", failure)
    return error
