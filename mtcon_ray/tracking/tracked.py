"""Reader of a sweep's runs in MLflow, by trial."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcon_ray.base.paths import event_file
from mtcon_ray.errors import TrackingError
from mtcon_ray.records.event_log import identity
from mtcon_ray.tracking.mlflow_server import (
    PARENT,
    HeldError,
    check_experiment,
    check_server,
    first_line,
    open_client,
    restore_command,
)


@dataclass(frozen=True)
class Tracked:
    """The runs of a trial or sweep: the number of active runs, and status and metrics of the first.

    `metrics` has the last value of each metric, `steps` the steps of a single metric in the order
    of time. `restore` is the command to restore the run if all runs are deleted.
    """

    num_runs: int
    restore: str | None
    status: str
    metrics: dict[str, float]
    steps: tuple[int, ...]


def tracked_runs(
    folder: Path, uri: str, experiment: str, metric: str
) -> tuple[dict[str, Tracked], str | None]:
    """Returns MLflow's runs of a sweep by name ("parent", "trial-0003").

    `steps` belong to `metric`. The second result is the problem of the whole experiment, if any.
    Only reads. Raises TrackingError if the server does not answer.
    """
    check_server(uri, way_out="or leave MLflow out with --no-mlflow")
    client = open_client(uri)
    from mlflow.exceptions import MlflowException

    from mtcon_ray.tracking.runs import find_runs

    found: dict[str, list[Any]] = {}
    problem = None
    try:
        place = client.get_experiment_by_name(experiment)
        try:
            if place is not None:
                check_experiment(place, uri, folder.parents[1])
        except HeldError as error:
            problem = str(error)
        if place is not None:
            for run in find_runs(client, place.experiment_id, identity(event_file(folder))):
                found.setdefault(run.data.tags.get("mtcon.trial", PARENT), []).append(run)
        tracked = {}
        for name, runs in found.items():
            active = [run for run in runs if run.info.lifecycle_stage == "active"]
            first = (active or runs)[0]
            command = restore_command(uri, "runs", "restore", "--run-id", first.info.run_id)
            history = client.get_metric_history(first.info.run_id, metric)
            steps = tuple(m.step for m in sorted(history, key=lambda m: (m.timestamp, m.step)))
            tracked[name] = Tracked(
                num_runs=len(active),
                restore=None if active else command,
                status=first.info.status,
                metrics=dict(first.data.metrics),
                steps=steps,
            )
        return tracked, problem
    except MlflowException as error:
        raise TrackingError(
            f"cannot read the runs on the tracking server: {first_line(error)}"
        ) from error
