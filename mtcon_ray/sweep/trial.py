"""A trial in the process that trains it: its paths, and the results that it sends to the driver."""

import json
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from mtcon_ray import errors
from mtcon_ray.base import paths, plugins
from mtcon_ray.base.root_files import remove_folder
from mtcon_ray.base.status import Status
from mtcon_ray.data import prepared
from mtcon_ray.data.dataset import Dataset
from mtcon_ray.data.objects import SAVE_SECONDS, Objects
from mtcon_ray.records.claim import is_taken
from mtcon_ray.records.events import Reported
from mtcon_ray.spec.run_spec import RunSpec, parse_spec
from mtcon_ray.tracking.system_metrics import memory
from mtcon_ray.training import checkpoint
from mtcon_ray.training.distributed import ALONE, Ranks, any_rank
from mtcon_ray.training.trainer import Progress, Trainer
from mtcon_ray.training.uploads import StoredTrial

# Seconds between two results of a trial without a probe. Ray Tune takes some 70 results per second.
RESULT_SECONDS = 1.0
PATH_SAVE_SECONDS = 30.0  # between two saves of a trial by default, with a root on a path


@dataclass(frozen=True)
class Assignment:
    """A task of the driver with all that a process needs to train it, see `driver.Task`."""

    name: str
    spec: RunSpec
    sweep: Path  # on this node
    sets: prepared.Sets = field(default_factory=dict)
    weights: bool = False  # initial weights are in the store
    until: int | None = None
    logged: int = 0
    tries: int = 1
    attempt: int = 0  # the number of the driver on its machine, see `next_attempt`
    driver: int = 0  # the number of the driver's claim, see `records/claim.py`
    register: str = ""  # the name of the driver's register, see `sweep/register.py`

    @classmethod
    def read(cls, config: dict[str, Any]) -> "Assignment":
        """Reads a configuration: `common` is of all trials of an attempt, the rest is a `Task`."""
        common = config["common"]
        if common["plugins"] is not None:
            plugins.allow(common["plugins"])
        base = parse_spec(json.loads(common["spec"]))
        root = paths.choose_root(common["root"], base.storage.local)
        spec, sweep = base.trial(config["values"], config["repeat"]), common["sweep"]
        given = {**common, **config}
        own = {each.name: given[each.name] for each in fields(cls) if each.name in given}
        own |= {"name": config["trial"], "spec": spec, "sweep": paths.sweep_folder(root, sweep)}
        return cls(**own)

    @property
    def root(self) -> Path:
        """The root on this node."""
        return self.sweep.parents[1]

    def checkpoints(self, rank: int) -> Path:
        """Returns the folder of the trial's checkpoints, on this node if the root is a URL."""
        if paths.stored_url(self.sweep) is None:
            return paths.checkpoint_folder(self.sweep, self.name)
        return self.root / "running" / self.sweep.name / self.name / f"{self.tries}-{rank}"

    def fetched(self, folder: Path) -> StoredTrial | None:
        """Downloads the files of earlier tries to a folder, and returns its copy in the store.

        Returns None for a root on a path. Raises StorageError.
        """
        if (url := paths.stored_url(paths.checkpoint_folder(self.sweep, self.name))) is None:
            return None
        for earlier in folder.parent.glob("*"):
            if not earlier.name.startswith(f"{self.tries}-"):
                remove_folder(earlier, ignore_errors=True)
        attempt, lazy = f"{self.driver:05d}.{self.tries:05d}", self.spec.tracking.checkpoints
        stored = StoredTrial(url, folder, attempt, self.check_claim, lazy=lazy != "all")
        stored.fetch()
        checkpoint.discard_other_training(folder, self.spec)
        return stored

    def check_claim(self) -> None:
        """Raises PreemptedError if a later driver has the claim of the sweep, and StorageError.

        The root must be in an object store.
        """
        if is_taken(Objects(paths.shown(self.sweep)), self.driver):
            raise self._taken_over()

    def check_driver(self) -> None:
        """Raises PreemptedError if a later driver has begun to give out the sweep's trials.

        A process may outlive its driver, as on a node that was cut off. It must not replace the
        checkpoints of a process of the later driver.
        """
        if paths.attempt_folder(self.sweep, self.attempt + 1).exists():
            raise self._taken_over()

    def _taken_over(self) -> errors.PreemptedError:
        why = "because a later driver has taken over the sweep"
        return errors.PreemptedError(f"{self.name} ends in this process, {why}")


def trial_device(gpus: float) -> torch.device:
    """Returns the GPU made visible to this process by Ray, or the CPU."""
    return torch.device("cuda", 0) if gpus and torch.cuda.is_available() else torch.device("cpu")


def check_device(gpus: float, device: torch.device) -> None:
    """Raises TrialError if Ray has counted GPUs on the node but torch finds no GPU."""
    if gpus and device.type == "cpu":
        raise errors.TrialError(
            f"torch finds no GPU on the node, but resources.gpus is {gpus:g}; install a torch for "
            "the GPU driver of that node, or --set resources.gpus=0"
        )


def open_trial_data(work: Assignment) -> Dataset:
    """Opens the trial's data, as the driver has prepared them."""
    spec, store = work.spec, paths.cache_folder(work.root)
    if paths.stored_url(work.root):
        paths.prepare_root(work.root)
        prepared.discard_unused(work.root)
    if work.weights:
        prepared.fetch_folder(work.sweep / prepared.WEIGHTS)
    found = work.sets[prepared.data_key(spec.data, spec.views.size)]
    return prepared.open_set(spec.data, store, *found)


def reports(
    work: Assignment,
    open_data: Callable[[Assignment], Dataset] = open_trial_data,
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
        make = partial(make_run, device=device, ranks=ranks, should_stop=should_stop)
        yield from _train(work, open_data, make, device, ranks, unsent)
    except Exception as error:
        end = ending(error)
        if end is None or ranks.world > 1:
            raise
    finally:
        if paths.stored_url(work.sweep):
            remove_folder(work.checkpoints(ranks.rank), ignore_errors=True)
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
    if isinstance(error, errors.TrialError | errors.SpecError):
        reason = f"{type(error).__name__.removesuffix('Error')}: {error}"
        return {"outcome": Status.FAILED, "reason": reason, "done": True}
    if isinstance(error, errors.MemoryTakenError | errors.PreemptedError):
        return None
    halt = error if isinstance(error, errors.MtconError) else errors.storage_error(error)
    if halt is None:
        return None
    return {"outcome": Status.INTERRUPTED, "halt": str(halt), "done": True}


class Stamp:
    """Maker of a trial's events, one for each epoch after `begin`."""

    def __init__(self, trial: str) -> None:
        self._trial = trial

    def begin(self, place: Mapping[str, str], sampled: torch.device | None) -> None:
        """Counts the time of the first epoch from now on, and `sampled`'s peak of memory."""
        self._sampled = sampled
        if sampled:
            memory(sampled)  # the process may have trained another trial before
        # For the first event alone.
        self._tags: dict[str, str] | None = {f"mtcon.{name}": v for name, v in place.items()}
        self._since = time.monotonic()

    def __call__(self, progress: Progress) -> str:
        """Returns the event of an epoch as a line, with the time since the last one."""
        now = time.monotonic()
        values = {**progress.metrics, **(memory(self._sampled) if self._sampled else {})}
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
    open_data: Callable[[Assignment], Dataset],
    make_run: Callable[..., Trainer],
    device: torch.device,
    ranks: Ranks,
    lines: list[str],
) -> Generator[dict[str, Any], None, None]:
    """Trains, as `reports` says. `lines` gets each epoch until it is sent."""
    check_device(work.spec.resources.gpus, device)
    begun = time.monotonic()
    dataset, stamp = open_data(work), Stamp(work.name)
    folder = work.checkpoints(ranks.rank)
    stored = work.fetched(folder)

    def saved(path: Path, number: int) -> None:
        if stored:
            stored.put(path, number, must=run.done)

    run = make_run(
        work.spec,
        dataset,
        folder,
        store=work.sweep if stored else paths.cache_folder(work.root),
        until=work.until,
        check=work.check_driver,
        to_line=stamp,
        saved=saved,
        save_seconds=SAVE_SECONDS if stored else PATH_SAVE_SECONDS,
    )
    damage = run.resume()
    has_system = ranks.rank == 0 and work.spec.tracking.system_metrics
    stamp.begin(run.place, device if has_system else None)
    # A killed process may have saved epochs that it has not sent.
    lines += [line for line in run.lines if json.loads(line)["epoch"] > work.logged]
    # The last epoch has no line before its test scores are measured.
    whole = [run.last] if run.last is not None and run.last.done else []
    # Sent before more is trained, because the driver may stop the trial.
    if any_rank(bool(lines) and not whole, ranks, device):
        yield {"lines": [*lines], "outcome": Status.RUNNING, "done": False}
        lines.clear()
    for progress in chain(whole, run):
        work.check_driver()
        if progress.done and ranks.rank == 0:
            tested = replace(progress, metrics={**progress.metrics, **run.report()})
            if (predictions := folder / paths.PREDICTIONS_FILE).exists():
                saved(predictions, progress.epoch)
            lines.append(stamp(tested))
        elif ranks.rank == 0:
            lines.append(run.lines[-1])
        # All ranks send results equally often, because sending waits for all ranks.
        is_probe = progress.evaluated or progress.done
        if is_probe or any_rank(time.monotonic() - begun >= RESULT_SECONDS, ranks, device):
            note = {"note": f"{work.name}: {damage}"} if damage else {}
            outcome = Status.FINISHED if progress.done else Status.RUNNING
            yield {"lines": [*lines], "outcome": outcome, "done": progress.done} | note
            lines.clear()
            damage, begun = None, time.monotonic()
    if run.interrupted:
        outcome = Status.WAITING if run.at_rung else Status.INTERRUPTED
        yield {"lines": [*lines], "outcome": outcome, "done": True}
