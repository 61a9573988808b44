"""Reader of a sweep's runs in MLflow, by trial."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcon_ray.base.paths import event_file
from mtcon_ray.records.event_log import identity
from mtcon_ray.tracking import mlflow_server as server


@dataclass(frozen=True)
class Tracked:
    """The runs of a trial or sweep: the number of active runs, and status and steps of the first.

    `steps` has the steps of a single metric in the order of time. `restore` is the command to
    restore the run if all runs are deleted.
    """

    num_runs: int
    restore: str | None
    status: str
    steps: tuple[int, ...]


def tracked_runs(
    folder: Path, uri: str, experiment: str, metric: str
) -> tuple[dict[str, Tracked], str | None]:
    """Returns MLflow's runs of a sweep by name ("parent", "trial-0003").

    `steps` belong to `metric`. The second result is the problem of the whole experiment, if any.
    Only reads. Raises TrackingError if the server does not answer.
    """
    server.check_server(uri, way_out="or leave MLflow out with --no-mlflow")
    client = server.open_client(uri)
    from mtcon_ray.tracking.runs import find_runs

    found: dict[str, list[Any]] = {}
    problem = None
    with server.tracking_errors("cannot read the runs on the tracking server"):
        place = client.get_experiment_by_name(experiment)
        if place is None:
            return {}, None
        try:
            server.check_experiment(place, uri, folder.parents[1])
        except server.HeldError as error:
            problem = str(error)
        for run in find_runs(client, place.experiment_id, identity(event_file(folder))):
            found.setdefault(run.data.tags.get("mtcon.trial", server.PARENT), []).append(run)
        tracked = {}
        for name, runs in found.items():
            active = [run for run in runs if run.info.lifecycle_stage == "active"]
            first = (active or runs)[0]
            run_id = first.info.run_id
            command = server.restore_command(uri, "runs", "restore", "--run-id", run_id)
            history = client.get_metric_history(run_id, metric)
            steps = tuple(m.step for m in sorted(history, key=lambda m: (m.timestamp, m.step)))
            tracked[name] = Tracked(
                num_runs=len(active),
                restore=None if active else command,
                status=first.info.status,
                steps=steps,
            )
    return tracked, problem
