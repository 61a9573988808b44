"""The runs of a sweep in MLflow: their search by the identity of its event log, and their removal.

See `mlflow_server` for imports of mlflow.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from mtcon_ray.base.paths import MLFLOW_ARTIFACTS, event_file
from mtcon_ray.base.root_files import remove_folder
from mtcon_ray.errors import SweepError
from mtcon_ray.records.event_log import first_event, identity
from mtcon_ray.tracking import mlflow_server as server

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MAX_RUNS = 50_000  # in an answer of every server


def runs_of(client: "MlflowClient", folder: Path, experiment: str) -> "list[Run]":
    """Returns the runs of a sweep's folder, active runs first, each part in order of their starts.

    Of runs with the same start the run with most data comes first. Returns no runs without the
    experiment.

    Deleted runs are included, because a run deleted by the user must not be created again.
    """
    from mlflow.entities import ViewType

    if (place := client.get_experiment_by_name(experiment)) is None:
        return []
    own = f"tags.`{server.IDENTITY}` = '{identity(event_file(folder))}'"
    runs = client.search_runs([place.experiment_id], own, ViewType.ALL, max_results=MAX_RUNS)

    def rank(run: "Run") -> tuple[bool, int, int]:
        # A duplicate has the same start. The run that was written to has more data.
        size = len(run.data.metrics) + len(run.data.params) + len(run.data.tags)
        return run.info.lifecycle_stage != "active", run.info.start_time, -size

    return sorted(runs, key=rank)


def remove_runs(folder: Path, uri: str, experiment: str) -> str:
    """Deletes the runs of a sweep's folder, and returns what became of them.

    Their files below the root are removed. All other files stay until `mlflow gc`, which their
    owner runs, because it removes all deleted runs and experiments. Raises TrackingError if the
    server does not answer, SweepError if the beginning of the sweep's event log is lost.
    """
    if first_event(event_file(folder)) is None:
        raise SweepError(f"{folder.name!r} has no event log, by which its runs are found")
    client = server.check_server(uri, way_out="or leave out --mlflow")
    with server.tracking_errors("cannot delete the runs on the tracking server"):
        found = runs_of(client, folder, experiment)
        # A copy of the sweep under another name has the same event log.
        runs = [run.info for run in found if run.data.tags.get("mtcon.sweep") == folder.name]
        for run in runs:
            if run.lifecycle_stage == "active":
                client.delete_run(run.run_id)
            files = folder.parents[1] / MLFLOW_ARTIFACTS / run.run_id
            # The id may be a stranger's, such as "../sweeps/shoes-2".
            is_own = run.run_id.isalnum() and run.artifact_uri == f"{files.as_uri()}/artifacts"
            if is_own and files.exists():
                remove_folder(files)
    rest = f"{server.restore_command(uri, 'gc')} removes all deleted runs for good"
    return f"{len(runs)} runs deleted in MLflow; {rest}"
