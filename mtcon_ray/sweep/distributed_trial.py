"""Distributed trials: Ray Train's TorchTrainer inside a Tune function."""

import json
import re
import time
from typing import Any

import ray
import ray.train
import ray.train.torch
from ray import tune
from ray.exceptions import RayActorError
from ray.train.torch import TorchConfig, TorchTrainer
from ray.tune.experiment import Trial
from ray.tune.integration.ray_train import TuneReportCallback
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from mtcon_ray.base.paths import TUNE_FOLDER
from mtcon_ray.base.status import Status
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.display.presentation import one_line
from mtcon_ray.sweep.register import Line
from mtcon_ray.sweep.trial import Assignment, ending, open_trial_data, reports
from mtcon_ray.training.distributed import Ranks

PLACEMENT_GROUP = "placement_group"
# Ray Train's attempts to place a trial's workers, a minute each, because a node may have to boot.
CONTROLLER_FAILURES = 30
# Timeout of collective operations in seconds, for lost workers. No rank works alone for long while
# others are in such an operation: while rank 0 evaluates, they wait in `report`.
COLLECTIVE_SECONDS = 300
# Delay of the cleanup, because Tune calls its callbacks before it stops the trial's processes.
REAP_SECONDS = 5.0
MAX_REASON = 500
ERROR_LINE = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
# Beginning of a line like "\tactor_id: 4f2a" in Ray's message about a lost process.
IDENTIFIER = re.compile(r"\s+[a-z_]+: ")


def driver_resources() -> dict[str, float]:
    """Returns the resources of a distributed trial's driver process.

    It takes no CPU, and runs on the head or a node for drivers, never on a spot node.
    """
    driver_nodes = ray.cluster_resources().get("sweep_driver")
    return {"sweep_driver" if driver_nodes else "node:__internal_head__": 0.001}


def distributed_trial(config: dict[str, Any]) -> None:
    """Runs a distributed trial. Its workers report to Tune through Train's callback.

    An error on a rank ends the whole group: the other ranks would wait for ever in a collective
    operation or in `ray.train.report`, which is a barrier. Train does not start the group again,
    because an error of this package would come again. After any other error the driver gives the
    trial out again.
    """
    work = Assignment.read(config)
    try:
        _trainer(work, config).fit()
    except ray.train.TrainingFailedError as error:
        tune.report(_ending_of(error))
    except OSError as error:
        if (end := ending(error)) is None:
            raise
        tune.report(end)


def _trainer(work: Assignment, config: dict[str, Any]) -> TorchTrainer:
    resources = work.spec.resources
    low, high = resources.worker_range
    # mypy sees the types of Train's first version. The second version runs. It takes a range of
    # workers, and limits failures of its controller.
    return TorchTrainer(
        train_loop_per_worker=_train_as_worker,
        train_loop_config=config,
        torch_config=TorchConfig(timeout_s=COLLECTIVE_SECONDS),
        scaling_config=ray.train.ScalingConfig(
            num_workers=low if low == high else (low, high),  # type: ignore[arg-type]
            use_gpu=resources.gpus > 0,
            resources_per_worker={"CPU": float(resources.cpus), "GPU": resources.gpus},
        ),
        run_config=ray.train.RunConfig(
            name=f"{work.sweep.name}-{work.name}-{time.time_ns()}",
            storage_path=str(work.sweep / TUNE_FOLDER / "train"),
            failure_config=ray.train.FailureConfig(
                max_failures=0,
                controller_failure_limit=CONTROLLER_FAILURES,  # type: ignore[call-arg]
            ),
            callbacks=[TuneReportCallback()],  # type: ignore[list-item]
        ),
    )


class RankEnded(Exception):
    """The last result of a trial as JSON: Train passes on only the text of a worker's error."""


LAST_RESULT = re.compile(r'(?:^|RankEnded: )(\{"outcome": .*\})$', re.MULTILINE)


def _train_as_worker(config: dict[str, Any]) -> None:
    """Trains on a worker. Every rank reports equally often, because `report` is a barrier."""
    group = ray.util.get_current_placement_group()
    assert group is not None
    # Reported before anything slow: the cleanup needs it if the trial is stopped early.
    begun = {PLACEMENT_GROUP: group.id.hex()}
    ray.train.report(begun)
    context = ray.train.get_context()
    work = Assignment.read(config)
    ranks = Ranks(context.get_world_rank(), context.get_world_size())

    def open_data(work: Assignment) -> Dataset:
        dataset = open_trial_data(work)
        # A barrier: ranks with cached images would else wait for others in a collective operation.
        ray.train.report(begun)
        return dataset

    line = Line(work.register, work.name, work.check_driver)
    device = ray.train.torch.get_device()
    try:
        for result in reports(work, open_data, device=device, should_stop=line, ranks=ranks):
            ray.train.report(result)
    except Exception as error:
        if (end := ending(error)) is None:
            raise
        raise RankEnded(json.dumps(end)) from None


def _ending_of(error: Exception) -> dict[str, Any]:
    """Returns the last result of a trial after an error of Train.

    It has the key `lost` with the reason if the trial may be tried again, and the key `preempted`.
    """
    raised = dict(sorted(getattr(error, "worker_failures", {}).items()))
    if ends := list(filter(None, (LAST_RESULT.search(str(each)) for each in raised.values()))):
        return dict(json.loads(ends[0][1]))
    if raised:
        # The error of a worker often fails all others.
        reason = "; ".join(f"worker {rank}: {error_line(each)}" for rank, each in raised.items())
        preempted = any(map(is_preempted, raised.values()))
        return {"lost": reason[:MAX_REASON], "preempted": preempted, "done": True}
    reason = error_line(getattr(error, "controller_failure", error))
    return {"outcome": Status.FAILED, "reason": reason, "done": True}


def is_preempted(error: Exception | None) -> bool:
    """Returns True for the loss of a process on a node that was announced to be taken away."""
    died = getattr(error, "health_check_failure", error)
    return isinstance(died, RayActorError) and died.preempted


def error_line(error: Exception) -> str:
    """Returns an error as a single line, Ray's own errors without the name of their type."""
    if type(error).__module__.partition(".")[0] == "ray":
        return error_in(str(error))
    return f"{type(error).__name__}: {one_line(str(error))}"[:MAX_REASON]


def last_error(text: str) -> str:
    r"""Returns the last failure in Tune's error file, as a single line.

    >>> last_error("Failure # 1 (occurred at noon)\nTraceback:\n  f()\nKeyError: 'x'\n")
    "KeyError: 'x'"
    """
    return error_in(text.rpartition("Failure # ")[2].partition("\n")[2])


def error_in(text: str) -> str:
    r"""Returns a trace of Python, or Ray's message about a lost process, as a single line.

    Of a Python error this is the line with its type, even if more lines follow. Ray's lines with
    the numbers and addresses of the process are left out.

    >>> error_in("Traceback:\n  f()\nKeyError: 'x'\n")
    "KeyError: 'x'"
    >>> error_in("The actor died.\n\tclass_name: Worker\n\tpid: 7\nIts node has died.")
    'The actor died. Its node has died.'
    """
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if named := [line for line in lines if ERROR_LINE.match(line)]:
        return named[-1][:MAX_REASON]
    told = (line.strip() for line in lines if not IDENTIFIER.match(line))
    return " ".join(told)[:MAX_REASON] or "its process was lost"


class PlacementGroupCleanup(tune.Callback):
    """Placement-group cleanup for distributed trials stopped by Tune.

    Ray 2.60 does it in a process that needs the dashboard of the only Ray on the host. If the
    dashboard is unreachable, the workers' resources stay taken and the next trial waits for ever.
    """

    def __init__(self) -> None:
        self._groups: dict[str, PlacementGroup] = {}
        self._due: list[tuple[float, PlacementGroup]] = []

    def on_trial_result(
        self, iteration: int, trials: list[Trial], trial: Trial, result: dict[str, Any], **info: Any
    ) -> None:
        """Stores the placement group of a trial's workers. A restarted trial has a new group."""
        if PLACEMENT_GROUP in result:
            group = ray.PlacementGroupID(bytes.fromhex(result[PLACEMENT_GROUP]))
            self._groups[trial.trial_id] = PlacementGroup(group)

    def on_trial_complete(
        self, iteration: int, trials: list[Trial], trial: Trial, **info: Any
    ) -> None:
        """Schedules the cleanup after a trial's end, early or not."""
        if (group := self._groups.pop(trial.trial_id, None)) is not None:
            self._due.append((time.monotonic() + REAP_SECONDS, group))

    on_trial_error = on_trial_complete

    def waits(self, trial_id: str) -> bool:
        """Returns True if the workers of a trial have not begun or wait for a node."""
        group = self._groups.get(trial_id)
        return group is None or placement_group_table(group).get("state") != "CREATED"

    def on_step_end(self, iteration: int, trials: list[Trial], **info: Any) -> None:
        """Removes all groups due, once per iteration of Tune's loop."""
        while self._due and self._due[0][0] <= time.monotonic():
            remove_placement_group(self._due.pop(0)[1])

    def on_experiment_end(self, trials: list[Trial], **info: Any) -> None:
        """Removes the remaining groups at the end of the sweep."""
        for _, group in self._due:
            remove_placement_group(group)
