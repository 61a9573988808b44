"""Registration of an exported model as a version in MLflow's registry, linked to its run.

The files are downloaded and opened as they are. They have no flavour of MLflow's.
"""

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from mtcon_ray.base.paths import event_file
from mtcon_ray.errors import SweepError, TrackingError
from mtcon_ray.records.event_log import first_event, identity
from mtcon_ray.tracking import mlflow_server as server
from mtcon_ray.tracking.login import check_place

if TYPE_CHECKING:
    from mlflow.entities import Run

EXPORTS = "export"  # the folder of exported models among the artifacts of a run


def find_run(name: str, *, uri: str, experiment: str, folder: Path, trial: str) -> "Run":
    """Returns the run of a sweep's trial after checking that its model can be registered as `name`.

    Only reads from the server. Raises TrackingError if the server does not answer, has no such run,
    has no model registry or rejects the name. Raises UserError as `check_place` does, and
    SweepError if the beginning of the sweep's event log is lost.
    """
    if first_event(event_file(folder)) is None:
        raise SweepError(f"{folder.name!r} has no event log, by which its runs are found")
    client = server.check_server(uri, way_out="or leave out --register")
    failure = "cannot register a model with the tracking server"
    with server.tracking_errors(failure, but="RESOURCE_DOES_NOT_EXIST"):
        client.get_registered_model(name)  # MLflow also checks the name
    with server.tracking_errors(failure):
        found = client.get_experiment_by_name(experiment)
        # Another user's sweep on the same server may have the same name.
        own = f"tags.`{server.IDENTITY}` = '{identity(event_file(folder))}'"
        chosen = f"{own} and tags.`mtcon.trial` = '{trial}'"
        runs = client.search_runs([found.experiment_id], chosen, max_results=1) if found else []
    if not runs:
        raise TrackingError(
            f"cannot register the model of {folder.name}/{trial}: experiment {experiment!r} has no "
            f"run of it on the tracking server; {server.sync_command(folder)} sends it"
        )
    check_place(runs[0].info.artifact_uri, uri, EXPORTS)
    return runs[0]


def register_model(files: Path, name: str, uri: str, run: "Run") -> str:
    """Uploads `files` as artifacts of the run, registers them and returns the version number.

    Raises TrackingError if the server rejects the files or the version.
    """
    client = server.open_client(uri)
    failure = f"the model {name!r} was not registered"
    with server.tracking_errors(failure):
        # A new path per registration, because a version must not overwrite earlier versions.
        place = f"{EXPORTS}/{uuid4().hex[:8]}"
        client.log_artifacts(run.info.run_id, str(files), place)
        with server.tracking_errors(failure, but="RESOURCE_ALREADY_EXISTS"):
            client.create_registered_model(name)
        version = client.create_model_version(
            name,
            f"{run.info.artifact_uri}/{place}",
            run.info.run_id,
            tags={name: run.data.tags[name] for name in ("mtcon.sweep", "mtcon.trial")},
            description=(files / "README.md").read_text(encoding="utf-8"),
        )
    return str(version.version)
