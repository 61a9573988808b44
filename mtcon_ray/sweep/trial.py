"""A trial in the process that trains it: its paths, and the results that it sends to the driver."""

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from mtcon_ray.base import plugins
from mtcon_ray.base.paths import (
    attempt_folder,
    cache_folder,
    checkpoint_folder,
    expanded,
)
from mtcon_ray.base.status import Status
from mtcon_ray.data.dataset import Dataset, open_dataset
from mtcon_ray.errors import (
    MemoryTakenError,
    MtconError,
    PreemptedError,
    SpecError,
    TrialError,
    storage_error,
)
from mtcon_ray.records.events import Reported
from mtcon_ray.spec.run_spec import RunSpec, dump_spec, parse_spec
from mtcon_ray.tracking.provenance import place_tags
from mtcon_ray.tracking.system_metrics import SystemMetrics
from mtcon_ray.training.distributed import ALONE, Ranks, any_rank
from mtcon_ray.training.trainer import Progress, Trainer

# Seconds between two results of a trial without a probe. Ray Tune takes some 70 results per second.
RESULT_SECONDS = 1.0


def common_config(
    spec: RunSpec, sweep: Path, root: Path, places: Mapping[str, str], attempt: int, register: str
) -> dict[str, Any]:
    """Returns the part of the configuration shared by all trials of a driver."""
    return {
        # As text: Tune copies the configuration for every trial, and copies share a string.
        "spec": json.dumps(dump_spec(spec)),
        "sweep": str(sweep),
        "root": str(root),
        "places": places,
        "plugins": plugins.allowed_folders(),
        "attempt": attempt,
        "register": register,
    }


@dataclass(frozen=True)
class Assignment:
    """A task of the driver with all that a process needs to train it, see `driver.Task`."""

    name: str
    spec: RunSpec
    sweep: Path
    root: Path
    places: dict[str, str]
    until: int | None = None
    logged: int = 0
    attempt: int = 0  # the number of the driver, see `next_attempt`
    register: str = ""  # the name of the driver's register, see `sweep/register.py`

    @classmethod
    def read(cls, config: dict[str, Any]) -> "Assignment":
        """Reads a configuration: `common` from `common_config`, the rest from `Task`."""
        common = config["common"]
        if common["plugins"] is not None:
            plugins.allow(common["plugins"])
        base = parse_spec(json.loads(common["spec"]))
        return cls(
            name=config["trial"],
            spec=base.trial(config["values"], config["repeat"]),
            sweep=Path(common["sweep"]),
            root=Path(common["root"]),
            places=common["places"],
            until=config["until"],
            logged=config["logged"],
            attempt=common["attempt"],
            register=common["register"],
        )

    @property
    def checkpoints(self) -> Path:
        """Directory of the trial's checkpoints."""
        return checkpoint_folder(self.sweep, self.name)

    def check_driver(self) -> None:
        """Raises PreemptedError if a later driver has begun to give out the sweep's trials.

        A process may outlive its driver, as on a node that was cut off. It must not replace the
        checkpoints of a process of the later driver.
        """
        if attempt_folder(self.sweep, self.attempt + 1).exists():
            raise PreemptedError(
                f"{self.name} ends in this process, because a later driver has taken over the "
                f"sweep; driver {self.attempt} started this process"
            )


def trial_device(gpus: float) -> torch.device:
    """Returns the GPU made visible to this process by Ray, or the CPU."""
    return torch.device("cuda", 0) if gpus and torch.cuda.is_available() else torch.device("cpu")


def check_device(gpus: float, device: torch.device) -> None:
    """Raises TrialError if Ray has counted GPUs on the node but torch finds no GPU."""
    if gpus and device.type == "cpu":
        raise TrialError(
            f"torch finds no GPU on the node, but resources.gpus is {gpus:g}; install a torch for "
            "the GPU driver of that node, or --set resources.gpus=0"
        )


def open_trial_data(work: Assignment) -> Dataset:
    """Opens the trial's data in the cache filled by the driver, without downloads."""
    near = work.spec.storage.node_store
    return open_dataset(
        work.spec.data,
        view_size=work.spec.views.size,
        store=cache_folder(work.root),
        places=work.places,
        node_store=expanded(near) if near else None,
    )


def reports(
    work: Assignment,
    open_data: Callable[[], Dataset],
    *,
    device: torch.device,
    should_stop: Callable[[], bool] = lambda: False,
    ranks: Ranks = ALONE,
    make_run: Callable[..., Trainer] = Trainer,
) -> Generator[dict[str, Any], None, None]:
    """Trains the trial and yields a result at each probe, at the end, and about once per second.

    A result has the `lines` of all epochs since the last result, as the event log stores them.
    `should_stop` returns True once the trial must checkpoint and end. An error of this package ends
    the trial with the result of `ending`, and the process can train the next trial. With several
    workers the error is raised instead, because the other ranks wait for this rank in a collective
    operation and their group has to be ended.
    """
    end: dict[str, Any] | None = None
    unsent: list[str] = []
    try:
        yield from _train(work, open_data, device, should_stop, ranks, make_run, unsent)
    except Exception as error:
        end = ending(error)
        if end is None or ranks.world > 1:
            raise
    # Not in the `except` block, where the error's traceback keeps the step's tensors alive.
    if end is not None:
        yield {**end, "lines": unsent}


def ending(error: Exception) -> dict[str, Any] | None:
    """Returns the last result after an error of a trial, or None for an unexpected error.

    An unexpected error ends the process, and the driver gives the trial out again.
    PreemptedError and MemoryTakenError do the same: with less memory taken by other processes, the
    same configuration may fit.

    Errors of the configuration or of the node's software fail the trial. All other errors of this
    package, such as a full disk or changed images, would fail every further trial too. Their result
    has the key `halt` with the reason to end the whole sweep. The trial can be resumed.
    """
    if isinstance(error, TrialError | SpecError):
        reason = f"{type(error).__name__.removesuffix('Error')}: {error}"
        return {"outcome": Status.FAILED, "reason": reason, "done": True}
    if isinstance(error, MemoryTakenError | PreemptedError):
        return None
    halt = error if isinstance(error, MtconError) else storage_error(error)
    if halt is None:
        return None
    return {"outcome": Status.INTERRUPTED, "halt": str(halt), "done": True}


class Stamp:
    """Maker of a trial's events, one for each epoch."""

    def __init__(self, trial: str, place: Mapping[str, str], system: SystemMetrics | None) -> None:
        self._trial, self._system = trial, system
        self._tags: dict[str, str] | None = place_tags(place)  # for the first event alone
        self._since = time.monotonic()

    def __call__(self, progress: Progress) -> str:
        """Returns the event of an epoch as a line, with the time since the last one."""
        now = time.monotonic()
        values = {**progress.metrics, **(self._system.sample() if self._system else {})}
        event = Reported(
            trial=self._trial,
            epoch=progress.epoch,
            metrics=values,
            tags=self._tags,
            seconds=round(now - self._since, 3),
            time_ms=time.time_ns() // 1_000_000,
        )
        self._tags, self._since = None, now
        return event.to_line()


def _train(
    work: Assignment,
    open_data: Callable[[], Dataset],
    device: torch.device,
    should_stop: Callable[[], bool],
    ranks: Ranks,
    make_run: Callable[..., Trainer],
    lines: list[str],
) -> Generator[dict[str, Any], None, None]:
    """Trains, as `reports` says. `lines` gets each epoch until it is sent."""
    check_device(work.spec.resources.gpus, device)
    begun = time.monotonic()
    dataset = open_data()
    stamp: Stamp | None = None

    def to_line(progress: Progress) -> str:
        assert stamp is not None, "no epoch ends before the training has begun"
        return stamp(progress)

    run = make_run(
        work.spec,
        dataset,
        work.checkpoints,
        device=device,
        ranks=ranks,
        should_stop=should_stop,
        store=cache_folder(work.root),
        until=work.until,
        to_line=to_line,
    )
    damage = run.resume()
    has_system = ranks.rank == 0 and work.spec.tracking.system_metrics
    stamp = Stamp(work.name, run.place, SystemMetrics(device) if has_system else None)
    # A killed process may have saved epochs that it has not sent.
    lines += [line for line in run.lines if json.loads(line)["epoch"] > work.logged]
    # The last epoch has no line before its test scores are measured.
    whole = [run.last] if run.last is not None and run.last.done else []
    for progress in chain(whole, run):
        if progress.done and ranks.rank == 0:
            tested = replace(progress, metrics={**progress.metrics, **run.report()})
            lines.append(to_line(tested))
        elif ranks.rank == 0:
            lines.append(run.lines[-1])
        work.check_driver()
        # All ranks send results equally often, because sending waits for all ranks.
        is_probe = progress.evaluated or progress.done
        late = not is_probe and time.monotonic() - begun >= RESULT_SECONDS
        if is_probe or any_rank(late, ranks, device):
            note = {"note": f"{work.name}: {damage}"} if damage else {}
            outcome = Status.FINISHED if progress.done else Status.RUNNING
            yield {"lines": [*lines], "outcome": outcome, "done": progress.done} | note
            lines.clear()
            damage, begun = None, time.monotonic()
    if run.interrupted:
        outcome = Status.WAITING if run.at_rung else Status.INTERRUPTED
        yield {"lines": [*lines], "outcome": outcome, "done": True}
