"""A real MLflow on SQLite for every test; its schema is created once."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mtcon_ray.records.events import Started
from mtcon_ray.tracking.mlflow_server import open_client
from mtcon_ray.tracking.sender import Sender
from tests.run_log import RunLog
from tests.tracking.mlflow_server import Server
from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run

MLFLOW = [
    pytest.mark.mlflow,
    # MLflow 3.17.2 itself uses SQLAlchemy's deprecated `noload` loader.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader:DeprecationWarning"),
]


@pytest.fixture
def root(tmp_path: Path, empty_database: Path) -> Path:
    """Returns a root with its own database."""
    shutil.copy(empty_database, tmp_path / "mlflow.db")
    return tmp_path


class Sweep:
    """A sweep's folder with an event log as a driver and its trials write it."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.folder, self.uri, self.experiment = folder, uri, "tests"

    def spool(self, name: str = "parent") -> RunLog:
        return RunLog(self.folder, name)

    def begin(self, name: str = "parent", **tags: str) -> RunLog:
        """Writes the start event of the parent or of a trial."""
        spool = self.spool(name)
        params = {} if name == "parent" else {"method.temperature": 0.1}
        tags |= {"mtcon.sweep": self.folder.name, "mtcon.epochs": "5", "mtcon.seed": "0"}
        spool.append(Started(params=params, tags=tags))
        return spool

    def begin_both(self, *epochs: int) -> RunLog:
        """Writes the starts of the parent and of a trial with these epochs; returns its log."""
        self.begin()
        trial = self.begin("trial-0000")
        trial.report(*epochs)
        return trial

    def sender(self) -> Sender:
        """Returns a new sender, which is not started."""
        return Sender(self.folder, self.uri, self.experiment)

    @contextmanager
    def sending(self, left: int = 0) -> Iterator[Sender]:
        """Runs a sender; asserts at the end that all events but `left` were sent."""
        sender = self.sender()
        sender.start()
        try:
            yield sender
        finally:
            assert sender.close(PATIENCE_SECONDS) == left, sender.last_error

    def send(self, left: int = 0) -> Sender:
        """Sends all events but `left`; returns the sender."""
        with self.sending(left) as sender:
            return sender

    @property
    def client(self) -> "MlflowClient":
        return open_client(self.uri)

    def execute(self, statement: str, *values: str) -> None:
        """Runs an SQL statement in the database."""
        with closing(sqlite3.connect(self.uri.removeprefix("sqlite:///"))) as database, database:
            database.execute(statement, values)

    def runs(self, name: str = "parent") -> "list[Run]":
        """Returns the sweep's MLflow runs of that name."""
        experiment = self.client.get_experiment_by_name(self.experiment)
        assert experiment is not None
        own = f"tags.`mtcon.sweep` = '{self.folder.name}'"
        title = self.folder.name if name == "parent" else f"{self.folder.name}/{name}"
        runs = self.client.search_runs([experiment.experiment_id], own)
        return [run for run in runs if run.info.run_name == title]

    def run(self, name: str = "parent") -> "Run":
        """Returns the only MLflow run of that name; fails if there are several."""
        (run,) = self.runs(name)
        return run

    def id(self, name: str = "parent") -> str:
        """Returns the id of that run."""
        return str(self.run(name).info.run_id)

    def steps(self, name: str, metric: str = "loss") -> list[int]:
        """Returns the steps of a metric's history in the order of time, duplicates included."""
        history = self.client.get_metric_history(self.id(name), metric)
        return [m.step for m in sorted(history, key=lambda m: (m.timestamp, m.step))]


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    """Yields a server on the root's database, which is not started."""
    server = Server(root)
    yield server
    server.kill()


@pytest.fixture
def sweep(root: Path) -> Sweep:
    """Returns a sweep with an empty folder and the root's database."""
    return Sweep(root / "sweeps" / "shoes-1", f"sqlite:///{root}/mlflow.db")
