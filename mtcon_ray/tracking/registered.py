"""An exported model as a version in MLflow's registry, beside the run that trained it.

Its files are registered as they are: MLflow's flavour for torch would trace the module again,
with shapes of its own choosing, and its general one would pickle it.
"""

from pathlib import Path
from uuid import uuid4

from mtcon_ray.errors import TrackingError
from mtcon_ray.tracking.server import open_client


def register_model(
    files: Path, name: str, *, uri: str, experiment: str, sweep: str, trial: str
) -> str:
    """The new version's number. The files become artifacts of the trial's run.

    Raises TrackingError where that run is not there or the server takes no model.
    """
    client = open_client(uri)
    from mlflow.exceptions import MlflowException

    try:
        found = client.get_experiment_by_name(experiment)
        chosen = f"tags.`mtcon.sweep` = '{sweep}' and tags.`mtcon.trial` = '{trial}'"
        runs = client.search_runs([found.experiment_id], chosen, max_results=1) if found else []
        if not runs:
            raise TrackingError(
                f"the tracking server must hold the run of {sweep}/{trial} to register its model, "
                f"got none in experiment {experiment!r}; `mtcon-ray track-sync {sweep}` sends it"
            )
        run_id, place = runs[0].info.run_id, f"export/{uuid4().hex[:8]}"
        client.log_artifacts(run_id, str(files), place)
        try:
            client.create_registered_model(name)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        version = client.create_model_version(
            name,
            f"{runs[0].info.artifact_uri}/{place}",
            run_id,
            tags={"mtcon.sweep": sweep, "mtcon.trial": trial},
            description=(files / "README.md").read_text(encoding="utf-8"),
        )
    except MlflowException as error:
        raise TrackingError(f"the model {name!r} was not registered: {error}") from error
    return str(version.version)
