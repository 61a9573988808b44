"""Reader of a folder's runs in MLflow: what the server holds of each event log."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcon_ray.errors import TrackingError
from mtcon_ray.paths import parent_log
from mtcon_ray.tracking.event_log import identity
from mtcon_ray.tracking.mlflow_server import check_server, first_line, open_client

PAGE = 500  # runs in one answer


@dataclass(frozen=True)
class Tracked:
    """The active runs of one event log: their number, and the first one's status and metrics.

    `metrics` has the last value of each metric, `steps` those of one metric in the order of time.
    """

    num_runs: int
    status: str
    metrics: dict[str, float]
    steps: tuple[int, ...]


def tracked_runs(folder: Path, uri: str, experiment: str, metric: str) -> dict[str, Tracked]:
    """Returns what MLflow holds of a folder's event logs by name ("parent", "trial-0003").

    `steps` are those of `metric`. Only reads. Raises TrackingError if the server does not answer.
    """
    check_server(uri, way_out="or leave MLflow out with --no-mlflow")
    client = open_client(uri)
    from mlflow.exceptions import MlflowException

    from mtcon_ray.tracking.runs import IDENTITY, PARENT

    found: dict[str, list[Any]] = {}
    try:
        place = client.get_experiment_by_name(experiment)
        chosen, token = f"tags.`{IDENTITY}` = '{identity(parent_log(folder))}'", None
        while place is not None:
            page = client.search_runs(
                [place.experiment_id], chosen, max_results=PAGE,
                order_by=["attributes.start_time ASC"], page_token=token,
            )  # fmt: skip
            for run in page:
                found.setdefault(run.data.tags.get("mtcon.trial", PARENT), []).append(run)
            token = page.token
            if not token:
                break
        tracked = {}
        for name, runs in found.items():
            first = runs[0]
            history = client.get_metric_history(first.info.run_id, metric)
            steps = tuple(m.step for m in sorted(history, key=lambda m: (m.timestamp, m.step)))
            tracked[name] = Tracked(len(runs), first.info.status, dict(first.data.metrics), steps)
        return tracked
    except MlflowException as error:
        raise TrackingError(
            f"the tracking server must show its runs, got: {first_line(error)}"
        ) from error
