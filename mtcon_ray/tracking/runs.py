"""Idempotent writer of one folder's MLflow runs; finds existing runs by tag after a restart.

All methods except `mark_killed` must be called by one thread at a time.
"""

import threading
import time
from contextlib import suppress
from pathlib import Path

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException

from mtcon_ray.errors import TrackingError
from mtcon_ray.tracking import mlflow_ui
from mtcon_ray.tracking.dataset_input import dataset_input
from mtcon_ray.tracking.events import Artifact, Ended, Event, Reopened, Reported, Started
from mtcon_ray.tracking.mlflow_server import RefusedError, artifact_location, open_client

PARENT = "parent"
IDENTITY = "mtcon.id"
ENDING_TAGS = ("mtcon.pruned", "mtcon.interrupted", "mtcon.reason")
MAX_VALUE = 5000  # characters of a tag or parameter that every server accepts

# Without this tag MLflow's UI opens the experiment in its view of language-model evaluations.
TRAINS_MODELS = {"mlflow.experimentKind": "custom_model_development"}


class Runs:
    """The parent run and its child runs by name ("parent", "trial-0003").

    `identity` distinguishes this folder from another one of the same name. `begun` is the first
    event of the parent's event log. The constructor connects to the server, looks up the runs of
    this folder and deletes duplicates of a run, except the first. A duplicate exists if a request
    created a run but its answer was lost.
    """

    def __init__(
        self, uri: str, experiment: str, folder: Path, identity: str, begun: Started
    ) -> None:
        self.ids: dict[str, str] = {}
        self.open: dict[str, str] = {}
        self._ended: set[str] = set()  # found as ended; a later event may reopen these
        self._params: dict[str, dict[str, str]] = {}  # of the active runs that were found
        self._client: MlflowClient = open_client(uri)
        self._folder = folder
        self._identity = identity
        self._columns = mlflow_ui.column_tags(begun.tags)
        self._dataset = dataset_input(folder, begun)
        self.experiment_id = self._experiment(experiment, artifact_location(uri, folder.parents[1]))
        for run in self._search():
            name, run_id = run.data.tags.get("mtcon.trial", PARENT), run.info.run_id
            if name not in self.ids:
                self.ids[name] = run_id
                if run.info.lifecycle_stage == "active":
                    self._params[name] = run.data.params
                if run.info.status == "RUNNING":
                    self.open[name] = run_id
                else:
                    self._ended.add(name)
            elif run.info.lifecycle_stage == "active":
                self._client.delete_run(run_id)

    def send(self, name: str, events: list[Event]) -> None:
        """Writes one event, or one group of events (see `sender`), to a run; creates a new run.

        Raises RefusedError if the server rejects the content, and the client's own errors if the
        server does not answer or no longer has the run.
        """
        if isinstance(events[0], Started) and name != PARENT:  # whose start is the identity
            self._delete_other(name, _params(events[0]))
        if name not in self.ids:
            self._create(name, events[0])
        try:
            match events[0]:
                case Artifact() as artifact:
                    self._artifact(name, artifact)
                case Reopened():
                    self._reopen(name)
                case _:
                    self._log(name, events)
        except MlflowException as error:
            if error.error_code == "INVALID_PARAMETER_VALUE":
                raise RefusedError(str(error)) from error
            raise

    def mark_killed(self, limit: float) -> int:
        """Sets open runs to KILLED; returns the number of runs set within `limit` seconds.

        May be called from any thread.
        """
        todo, marked = list(self.open.items()), list[str]()

        def mark() -> None:
            # IndexError: all are done. Other errors: no answer, and a resume corrects the status.
            with suppress(Exception):
                while True:
                    name, run_id = todo.pop()
                    self._client.set_terminated(run_id, "KILLED")
                    self.open.pop(name, None)
                    marked.append(name)

        # Several, because each waits for the server most of the time. Daemons, so that a server
        # that does not answer does not delay the end of the process.
        threads = [threading.Thread(target=mark, daemon=True) for _ in todo[:8]]
        deadline = time.monotonic() + limit
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return len(marked)

    def _experiment(self, name: str, artifacts: str | None) -> str:
        experiment = self._client.get_experiment_by_name(name)
        if experiment is None:
            try:
                return str(self._client.create_experiment(name, artifacts, TRAINS_MODELS))
            except MlflowException:
                # Another sweep may have created it between the two requests.
                experiment = self._client.get_experiment_by_name(name)
                if experiment is None:
                    raise
        if experiment.lifecycle_stage != "active":
            raise TrackingError(
                f"experiment {name!r} must not be deleted; restore it with `mlflow experiments "
                f"restore -x {experiment.experiment_id}` or choose another tracking.experiment"
            )
        return str(experiment.experiment_id)

    def _search(self) -> list[Run]:
        """Returns this folder's runs, active ones first.

        Deleted runs are included: a run that the user deleted must not be created again.
        """
        runs: list[Run] = []
        token: str | None = None
        while token != "":
            page = self._client.search_runs(
                [self.experiment_id],
                f"tags.`{IDENTITY}` = '{self._identity}'",
                run_view_type=ViewType.ALL,
                order_by=["attributes.start_time ASC"],
                page_token=token,
            )
            runs += page
            token = page.token or ""
        return sorted(runs, key=lambda run: run.info.lifecycle_stage != "active")

    def _delete_other(self, name: str, params: dict[str, str]) -> None:
        """Deletes the run of this name that was found, if it is of another configuration.

        A mirror lacks the last trials of a lost disk. A resume from it gives their names to the
        configurations that it suggests, and MLflow never changes a parameter.
        """
        found = self._params.pop(name, {})
        if any(found.get(key, value) != value for key, value in params.items()):
            self._client.delete_run(self.ids.pop(name))
            self.open.pop(name, None)
            self._ended.discard(name)

    def _create(self, name: str, event: Event) -> None:
        given = getattr(event, "tags", None) or {}
        tags = self._columns | given | {IDENTITY: self._identity}
        tags = {k: str(v)[:MAX_VALUE] for k, v in tags.items()}
        if name != PARENT:
            tags |= {"mtcon.trial": name, "mlflow.parentRunId": self.ids[PARENT]}
        if self._folder.parent.name == "sweeps":
            tags["mtcon.sweep"] = self._folder.name
        title = self._folder.name if name == PARENT else name
        run = self._client.create_run(
            self.experiment_id, start_time=event.time_ms, tags=tags, run_name=title
        )
        self.ids[name] = self.open[name] = run.info.run_id

    def _log(self, name: str, events: list[Event]) -> None:
        """Writes a group of events: a run's start, reports and end, as far as it has them.

        They are written together because each call of the client is a round trip.
        """
        run_id, first, last = self.ids[name], events[0], events[-1]
        # MLflow's store drops a metric that it has already, with its step, time and value.
        metrics = [
            Metric(key, value, event.time_ms, event.epoch)
            for event in events
            if isinstance(event, Reported)
            for key, value in event.metrics.items()
        ]
        # A run that a signal handler set to KILLED gets further epochs after a resume.
        if metrics and name in self._ended:
            self._reopen(name)
        params = _params(first) if isinstance(first, Started) else {}
        tagged = [e.tags for e in events if isinstance(e, Reported | Ended) and e.tags]
        tags = {name: value for found in tagged for name, value in found.items()}
        notes = [e.note for e in (last, first) if isinstance(e, Started | Ended) and e.note]
        if notes:
            tags[mlflow_ui.NOTE] = notes[0]
        # MLflow's client (3.17.2) splits this into batches of at most 1,000 entries, of which at
        # most 100 are parameters and 100 tags. Those are the limits of every server.
        self._client.log_batch(
            run_id,
            metrics=metrics,
            params=[Param(key, value) for key, value in params.items()],
            tags=[RunTag(k, str(v)[:MAX_VALUE]) for k, v in tags.items()],
            synchronous=True,
        )
        if isinstance(first, Started) and self._dataset:
            self._client.log_inputs(run_id, [self._dataset])
        if isinstance(last, Ended):
            self._client.set_terminated(run_id, last.status, last.time_ms)
            self.open.pop(name, None)

    def _artifact(self, name: str, event: Artifact) -> None:
        path = self._own_file(event.path)
        if not path.exists():
            raise RefusedError(f"{path} is not there any more")
        # log_artifact uploads a directory whole and follows its symbolic links out of the folder.
        if not path.is_file() or not path.resolve().is_relative_to(self._folder.resolve()):
            raise RefusedError(f"{path} is no file of {self._folder}")
        to = event.to
        # MLflow's clients differ in which paths with ".." or a leading dot they reject.
        if to and not to.isidentifier():
            raise RefusedError(f"{to!r} is no place for the artifact {path}")
        self._client.log_artifact(self.ids[name], str(path), to or None)

    def _own_file(self, recorded: str) -> Path:
        """Returns the path in this folder of a file that an event log names by an absolute path.

        The folder may be a copy below another root, which has the same `sweeps/<name>`.
        """
        path, home = Path(recorded), self._folder.parts[-2:]
        # The last occurrence: the root's own path may contain the same two names.
        for end in range(len(path.parts), 1, -1):
            if path.parts[end - 2 : end] == home:
                return self._folder.joinpath(*path.parts[end:])
        return path

    def _reopen(self, name: str) -> None:
        run_id = self.ids[name]
        tags = self._client.get_run(run_id).data.tags
        for tag in ENDING_TAGS:
            if tag in tags:
                self._client.delete_tag(run_id, tag)
        self._client.update_run(run_id, "RUNNING")
        self._ended.discard(name)
        self.open[name] = run_id


def _params(start: Started) -> dict[str, str]:
    """Returns a run's parameters as MLflow stores them."""
    params = {**(start.settings or {}), **start.params}
    return {key: str(value)[:MAX_VALUE] for key, value in params.items()}
