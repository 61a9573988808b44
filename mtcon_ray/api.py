"""The Python interface: the functions of `import mtcon_ray`.

They do the same as the commands, in the caller's process. Afterwards its environment variables,
loggers, working directory and signal handlers are as before. A Ray started by them has ended.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from mtcon_ray.base import paths, plugins
from mtcon_ray.cluster.environment import restored_environment, root_of, working_directory
from mtcon_ray.display.console import Console, Terminal
from mtcon_ray.display.plan_text import plan_lines
from mtcon_ray.errors import MtconError, SpecError
from mtcon_ray.plan.plan import Plan
from mtcon_ray.records.results import SweepResults, load_sweep
from mtcon_ray.records.stored import fetch_trials, find_network, find_sweep
from mtcon_ray.spec.run_spec import RunSpec, load_spec as load_file, parse_spec

if TYPE_CHECKING:
    from mtcon_ray.export.encoder import TrainedEncoder


class PrintedPlan(Plan):
    """A plan that prints like the command `plan`."""

    text: str

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: its name, the metrics of its last epoch, and the kept network's file.

    It is the only trial of the sweep of its name. `value` is the objective of the kept network,
    and the test scores among the metrics are of this network.
    """

    name: str
    metrics: dict[str, float]
    checkpoint: Path
    value: float | None


def allow_plugins() -> None:
    """Lets specs, checkpoints and exports import the modules that they name: their code runs."""
    plugins.allow()


def load_spec(spec: str | Path | Mapping[str, Any], overrides: Iterable[str] = ()) -> RunSpec:
    """Returns the spec in a YAML file or in a mapping, with `a.b=value` overrides applied.

    Relative paths in a mapping start at the working directory. Raises SpecError with file, field,
    rule and value.
    """
    if not isinstance(spec, Mapping):
        return load_file(Path(spec), overrides)
    try:
        # Refuses a Python set, whose order differs between processes.
        raw = json.loads(json.dumps(dict(spec), default=_plain))
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise SpecError(f"spec must hold plain values: {error}") from None
    return parse_spec(raw, overrides, folder=working_directory())


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):  # a section of another spec
        return value.model_dump(mode="json", by_alias=True)
    return str(value) if isinstance(value, Path) else value.tolist()  # as NumPy's numbers


def make_plan(spec: RunSpec, *, root: str | Path | None = None) -> PrintedPlan:
    """Returns the plan of a spec on this machine or the connected cluster, and starts nothing.

    Raises an MtconError for anything that would end a sweep at its start.
    """
    from mtcon_ray.cluster.connection import view_of
    from mtcon_ray.sweep.prior import plan_sweep

    with restored_environment():
        plan = plan_sweep(spec, root_of(root, spec.storage), view_of(None))
    return PrintedPlan(**plan.model_dump(), text="\n".join(plan_lines(spec, plan)))


def run_training(
    spec: RunSpec, *, name: str | None = None, resume: bool = False, root: str | Path | None = None
) -> TrainingResult:
    """Trains once, as a sweep of one trial without the spec's search.

    A training with one worker runs in this process, without Ray. Shows its progress, and tracks it
    by MLflow. Raises MtconError, also if the training fails, or Interrupted after Ctrl-C.
    """
    from mtcon_ray.sweep.run import train_once

    with restored_environment(), Console(Terminal()) as console:
        place = root_of(root, spec.storage)
        results = train_once(spec, root=place, name=name, resume=resume, callbacks=console)
    (trial,) = results.trials
    if results.winner is None:
        raise MtconError(f"{results.name} has failed: {trial.reason or 'its value is not finite'}")
    fetch_trials(results.folder, [paths.MODEL_FILE], trial.name)
    model = results.folder_of(trial) / paths.MODEL_FILE
    return TrainingResult(results.name, trial.last_metrics, model, trial.value)


def run_sweep(
    spec: RunSpec,
    *,
    name: str | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    here: bool = False,
    root: str | Path | None = None,
) -> SweepResults:
    """Runs or resumes a sweep to its end and returns its results.

    `retry_failed` resumes it and trains its failed trials again, from their start. With `here` it
    trains one trial after another in this process, without Ray, as in a notebook. Otherwise it uses
    the Ray connected to this process, else the cluster of RAY_ADDRESS, else a Ray of its own on
    this machine. Raises MtconError, or Interrupted after Ctrl-C.
    """
    from mtcon_ray.sweep.run import run_sweep

    with restored_environment(), Console(Terminal()) as console:
        return run_sweep(
            spec,
            root=root_of(root, spec.storage),
            name=name,
            resume=resume or retry_failed,
            retry_failed=retry_failed,
            here=here,
            callbacks=console,
        )


def load_results(name: str, *, root: str | Path | None = None) -> SweepResults:
    """Returns the results so far of a sweep, which may be a training.

    Raises SweepError if no sweep has this name.
    """
    return load_sweep(find_sweep(root_of(root), name))


def load_encoder(name: str | Path, *, root: str | Path | None = None) -> "TrainedEncoder":
    """Returns the encoder of a sweep's winner or of a checkpoint's file.

    Raises SweepError for an unknown name, MtconError if a sweep has no winner yet, CheckpointError
    for an unreadable file.
    """
    from mtcon_ray.export.encoder import TrainedEncoder

    return TrainedEncoder(find_network(str(name), root_of(root))[0])
