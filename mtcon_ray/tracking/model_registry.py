"""Registration of an exported model as a version in MLflow's registry, linked to its run.

The exported files are registered unchanged. MLflow's torch flavour would trace the module again
with shapes of its own choice, and its pyfunc flavour would pickle it.
"""

from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from mtcon_ray.errors import TrackingError, UserError
from mtcon_ray.tracking.mlflow_server import check_server, first_line, open_client


@dataclass(frozen=True)
class TrackedRun:
    """The MLflow run of a sweep's trial, on a server that has a model registry."""

    uri: str
    run_id: str
    artifact_uri: str
    sweep: str
    trial: str


def find_run(name: str, *, uri: str, experiment: str, sweep: str, trial: str) -> TrackedRun:
    """Returns the run of a trial after checking that its model can be registered as `name`.

    Only reads from the server. Raises TrackingError if the server does not answer, has no such run
    or has no model registry, and UserError if the server rejects the name.
    """
    check_server(uri, way_out="or leave out --register")
    client = open_client(uri)
    from mlflow.exceptions import MlflowException

    try:
        try:
            client.get_registered_model(name)
        except MlflowException as error:
            if error.error_code == "INVALID_PARAMETER_VALUE":
                raise UserError(
                    f"--register must be a name that MLflow takes, got {name!r}: "
                    f"{first_line(error)}"
                ) from None
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
        found = client.get_experiment_by_name(experiment)
        chosen = f"tags.`mtcon.sweep` = '{sweep}' and tags.`mtcon.trial` = '{trial}'"
        runs = client.search_runs([found.experiment_id], chosen, max_results=1) if found else []
    except MlflowException as error:
        raise TrackingError(
            f"the tracking server must take models and show runs, got: {first_line(error)}"
        ) from error
    if not runs:
        raise TrackingError(
            f"the tracking server must hold the run of {sweep}/{trial} to register its model, "
            f"got none in experiment {experiment!r}; `mtcon-ray track-sync {sweep}` sends it"
        )
    return TrackedRun(uri, runs[0].info.run_id, runs[0].info.artifact_uri, sweep, trial)


def register_model(files: Path, name: str, run: TrackedRun) -> str:
    """Uploads `files` as artifacts of the run and registers them; returns the version number.

    Raises TrackingError if the server rejects the files or the version.
    """
    client = open_client(run.uri)
    from mlflow.exceptions import MlflowException

    try:
        # A new path per registration, so that a version never overwrites an earlier one's files.
        place = f"export/{uuid4().hex[:8]}"
        client.log_artifacts(run.run_id, str(files), place)
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        version = client.create_model_version(
            name,
            f"{run.artifact_uri}/{place}",
            run.run_id,
            tags={"mtcon.sweep": run.sweep, "mtcon.trial": run.trial},
            description=(files / "README.md").read_text(encoding="utf-8"),
        )
    except MlflowException as error:
        raise TrackingError(
            f"the model {name!r} was not registered: {first_line(error)}"
        ) from error
    return str(version.version)
