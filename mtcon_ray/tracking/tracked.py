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

    `steps` has the steps of a single metric, in order. `restore` is the command to restore the
    first run. It is deleted if `num_runs` is 0.
    """

    num_runs: int
    restore: str
    status: str
    steps: list[int]


def tracked_runs(
    folder: Path, uri: str, experiment: str, metric: str
) -> tuple[dict[str, Tracked], str | None]:
    """Returns MLflow's runs of a sweep by name ("parent", "trial-0003").

    `steps` belong to `metric`. The second result is the problem of the whole experiment, if any.
    Only reads. Raises TrackingError if the server does not answer.
    """
    client = server.check_server(uri, way_out="or leave MLflow out with --no-mlflow")
    from mtcon_ray.tracking.runs import find_runs

    found: dict[str, list[Any]] = {}
    problem = None
    with server.tracking_errors("cannot read the runs on the tracking server"):
        if (place := client.get_experiment_by_name(experiment)) is None:
            return {}, None
        try:
            server.check_experiment(place, uri, folder.parents[1])
        except server.HeldError as error:
            problem = str(error)
        for run in find_runs(client, place.experiment_id, identity(event_file(folder))):
            found.setdefault(run.data.tags.get("mtcon.trial", server.PARENT), []).append(run)
        tracked = {}
        for name, runs in found.items():
            info = runs[0].info  # of an active run, if there is any
            history = client.get_metric_history(info.run_id, metric)
            tracked[name] = Tracked(
                num_runs=sum(run.info.lifecycle_stage == "active" for run in runs),
                restore=server.restore_command(uri, "runs", "restore", "--run-id", info.run_id),
                status=info.status,
                steps=sorted(entry.step for entry in history),
            )
    return tracked, problem
