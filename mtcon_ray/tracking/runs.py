"""Idempotent writer of a sweep's MLflow runs. It finds existing runs by tag after a restart.

All methods must be called by a single thread at a time.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from mtcon_ray.base.metrics import sigma
from mtcon_ray.base.paths import event_file, stored_url
from mtcon_ray.data.objects import Objects
from mtcon_ray.errors import UserError
from mtcon_ray.records.event_log import identity
from mtcon_ray.records.events import Artifact, Ended, Event, Reopened, Reported, Started
from mtcon_ray.tracking import mlflow_server as server
from mtcon_ray.tracking.login import check_place
from mtcon_ray.tracking.own_runs import MAX_RUNS, runs_of
from mtcon_ray.training.uploads import file_of

ENDING_TAGS = ("mtcon.pruned", "mtcon.interrupted", "mtcon.reason")
MAX_VALUE = 5000  # maximum length of a tag or parameter on every server

# Without this tag MLflow's UI opens the experiment in its view of language-model evaluations.
TRAINS_MODELS = {"mlflow.experimentKind": "custom_model_development"}


class Runs:
    """The parent run and its child runs by name ("parent", "trial-0003").

    `begun` is the first event of the log. The constructor connects to the server, looks up the runs
    of this folder and deletes duplicates of a run, except the first. A duplicate exists if a
    request created a run but its answer was lost. It raises UserError as `check_experiment` does.
    """

    def __init__(self, uri: str, experiment: str, folder: Path, begun: Started) -> None:
        self.ids: dict[str, str] = {}
        self._found: dict[str, Run] = {}
        self._steps: dict[tuple[str, str], set[int]] = {}  # by run and metric
        self._bad_metrics: set[str] = set()  # names refused by MLflow
        self._client: MlflowClient = server.open_client(uri)
        self._uri, self._folder, self._identity = uri, folder, identity(event_file(folder))
        # MLflow's own tags fill the default columns of its table.
        self._columns = {k: v for k, v in begun.tags.items() if k.startswith("mlflow.")}
        self.experiment_id = self._experiment(experiment)
        for run in runs_of(self._client, folder, experiment):
            name, run_id = run.data.tags.get("mtcon.trial", server.PARENT), run.info.run_id
            if name not in self.ids:
                self.ids[name], self._found[name] = run_id, run
            elif run.info.lifecycle_stage == "active":
                self._client.delete_run(run_id)

    def send(self, name: str, events: list[Event]) -> list[str]:
        """Writes an event, or a group of events (see `sender`), to a run. Creates a new run.

        Returns the refusals that MLflow would repeat. All other parts of the events are written.
        Raises UserError if the run or its experiment was deleted, and the client's own errors if
        the server does not answer or no longer has the run.
        """
        # The parent's start is the identity.
        if isinstance(events[0], Started) and name != server.PARENT:
            self._delete_other(name, _params(events[0]))
        if name not in self.ids and (refused := self._tried(name, self._create, name, events[0])):
            return refused
        if isinstance(events[0], Artifact):
            return self._artifact(name, events[0])
        if isinstance(events[0], Reopened):
            return self._tried(name, self._reopen, name)
        return self._log(name, events)

    def _tried(self, name: str, write: Callable[..., object], *arguments: object) -> list[str]:
        """Calls `write` for the run `name`, and returns the reason if MLflow refuses the request.

        Raises errors as `send` does.
        """
        try:
            write(*arguments)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            # A deleted run is refused with the same code as an invalid value.
            self._check_active(name)
            return [server.first_line(error)]
        return []

    def _check_active(self, name: str) -> None:
        """Raises UserError if a run or its experiment was deleted."""
        experiment = self._client.get_experiment(self.experiment_id)
        server.check_experiment(experiment, self._uri, self._folder.parents[1])
        if name not in self.ids:
            return
        info = self._client.get_run(self.ids[name]).info
        if info.lifecycle_stage != "active":
            command = server.restore_command(self._uri, "runs", "restore", "--run-id", info.run_id)
            raise UserError(f"run {name} is deleted in MLflow; restore it with {command}")

    def mark_killed(self) -> None:
        """Sets the running runs to KILLED, up to the first call without an answer."""
        own = f"tags.`{server.IDENTITY}` = '{self._identity}' and attributes.status = 'RUNNING'"
        with suppress(Exception):  # a resume corrects the status
            for run in self._client.search_runs([self.experiment_id], own, max_results=MAX_RUNS):
                self._client.set_terminated(run.info.run_id, "KILLED")

    def _experiment(self, name: str) -> str:
        root = self._folder.parents[1]
        if (experiment := self._client.get_experiment_by_name(name)) is None:
            artifacts = server.artifact_location(self._uri, root)
            try:
                return str(self._client.create_experiment(name, artifacts, TRAINS_MODELS))
            except MlflowException:
                # Another sweep may have created it between the two requests.
                if (experiment := self._client.get_experiment_by_name(name)) is None:
                    raise
        server.check_experiment(experiment, self._uri, root)
        return str(experiment.experiment_id)

    def _delete_other(self, name: str, params: dict[str, str]) -> None:
        """Deletes the run found under this name if it has another configuration.

        A log restored from a backup lacks the last trials. A resume gives their names to new
        configurations, and MLflow never changes a parameter. The run may be deleted already, if a
        kill prevented the creation of the next run.
        """
        found = self._found.get(name)
        if found and any(found.data.params.get(k, v) != v for k, v in params.items()):
            if found.info.lifecycle_stage == "active":
                self._client.delete_run(found.info.run_id)
            del self.ids[name], self._found[name]

    def _has(self, name: str, metric: Metric) -> bool:
        """Returns True if a run had a metric at its step before this start of the driver.

        An epoch that is trained again may have another time and value, and MLflow would keep both.
        """
        found, key = self._found.get(name), metric.key
        if found is None or key not in found.data.metrics:
            return False
        if (name, key) not in self._steps:
            history = self._client.get_metric_history(self.ids[name], key)
            self._steps[name, key] = {earlier.step for earlier in history}
        return metric.step in self._steps[name, key]

    def _create(self, name: str, event: Event) -> None:
        given = getattr(event, "tags", None) or {}
        tags = self._columns | given | {server.IDENTITY: self._identity}
        tags = {k: str(v)[:MAX_VALUE] for k, v in tags.items()}
        if name != server.PARENT:
            tags |= {"mtcon.trial": name, "mlflow.parentRunId": self.ids[server.PARENT]}
        tags["mtcon.sweep"] = self._folder.name
        # With the sweep's name: MLflow compares trials of several sweeps.
        title = self._folder.name if name == server.PARENT else f"{self._folder.name}/{name}"
        run = self._client.create_run(self.experiment_id, event.time_ms, tags, run_name=title)
        self.ids[name] = run.info.run_id

    def _log(self, name: str, events: list[Event]) -> list[str]:
        """Writes a group of a run's events: its start, reports and end, if present.

        They are written together because each call of the client is a round trip. Returns MLflow's
        refusals as `send` does.
        """
        first, last = events[0], events[-1]
        # MLflow's store drops a repeated metric of the same step, time and value.
        found = (m for event in events if isinstance(event, Reported) for m in _metrics(event))
        metrics = [m for m in found if m.key not in self._bad_metrics and not self._has(name, m)]
        params = _params(first) if isinstance(first, Started) else {}
        tagged = (e.tags or {} for e in events if isinstance(e, Reported | Ended))
        tags = {key: value for each in tagged for key, value in each.items()}
        run_params = [Param(key, value) for key, value in params.items()]
        run_tags = [RunTag(key, str(value)[:MAX_VALUE]) for key, value in tags.items()]
        refused = self._batch(name, [*metrics, *run_params, *run_tags])
        if isinstance(last, Ended):
            end = self.ids[name], last.status, last.time_ms
            refused += self._tried(name, self._client.set_terminated, *end)
        return refused

    def _batch(self, name: str, entries: Sequence[Metric | Param | RunTag]) -> list[str]:
        """Writes entries of a run in a single request, and returns the refused entries.

        A server refuses a whole request because of a single entry, so halves of it are tried.
        """
        if not (refused := self._tried(name, self._log_batch, name, entries)):
            return []
        if len(entries) > 1:
            half = len(entries) // 2
            return self._batch(name, entries[:half]) + self._batch(name, entries[half:])
        (entry,) = entries
        what = f"{type(entry).__name__.lower()} {entry.key[:80]!r}"
        if isinstance(entry, Metric):
            self._bad_metrics.add(entry.key)
            what += ", from this epoch on"
        # MLflow's text begins with the name, which may be long, and ends with the rule.
        reason = refused[0] if len(refused[0]) < 200 else "its name or value is too long"
        return [f"{what}: {reason}"]

    def _log_batch(self, name: str, entries: Sequence[Metric | Param | RunTag]) -> None:
        # MLflow's client (3.17.2) splits this into batches of at most 1,000 entries with at most
        # 100 parameters and 100 tags. These are the limits of every server.
        kinds = Metric, Param, RunTag
        by_kind: list[list[Any]] = [[e for e in entries if isinstance(e, kind)] for kind in kinds]
        metrics, params, tags = by_kind
        self._client.log_batch(self.ids[name], metrics, params, tags, synchronous=True)

    def _artifact(self, name: str, event: Artifact) -> list[str]:
        path, to, home = self._own_file(event.path), event.to, self._folder
        url = stored_url(self._folder)
        with ExitStack() as stack:
            if url and event.path.startswith(f"{url}/"):
                home = Path(stack.enter_context(TemporaryDirectory()))
                objects, of = Objects(url), event.path.removeprefix(f"{url}/")
                path = home / file_of(PurePosixPath(of).name)
                if found := objects.list(str(PurePosixPath(of).parent)).get(of):
                    objects.download(of, path, found.size)
            if not path.exists():
                return [f"{event.path} is not there any more"]
            # log_artifact uploads a directory whole and follows its symbolic links out of it.
            if not path.is_file() or not path.resolve().is_relative_to(home.resolve()):
                return [f"{path} is no file of {home}"]
            place = self._client.get_run(self.ids[name]).info.artifact_uri
            check_place(place, self._uri, str(Path(to, path.name)))
            file = self.ids[name], str(path), to or None
            return self._tried(name, self._client.log_artifact, *file)

    def _own_file(self, recorded: str) -> Path:
        """Returns the path in this folder of a file named by an absolute path in an event log.

        The folder may be a copy below another root, which has the same `sweeps/<name>`.
        """
        # The last occurrence: the root's own path may contain the same two names.
        _, home, inner = recorded.rpartition("/".join(["", *self._folder.parts[-2:], ""]))
        return self._folder / inner if home else Path(recorded)

    def _reopen(self, name: str) -> None:
        run_id = self.ids[name]
        for tag in self._client.get_run(run_id).data.tags.keys() & ENDING_TAGS:
            self._client.delete_tag(run_id, tag)
        self._client.update_run(run_id, "RUNNING")


def _metrics(event: Reported) -> Iterator[Metric]:
    """Yields the metrics of an epoch. Epoch 1 also has each sigma before training, at step 0."""
    for key, value in event.metrics.items():
        if event.epoch == 1 and key.startswith(sigma("")):
            yield Metric(key, 1.0, event.time_ms, 0)  # see `Weighting.sigma_by_task`
        yield Metric(key, value, event.time_ms, event.epoch)


def _params(start: Started) -> dict[str, str]:
    """Returns a run's parameters as MLflow stores them."""
    params = {**(start.settings or {}), **start.params}
    return {key: str(value)[:MAX_VALUE] for key, value in params.items()}
