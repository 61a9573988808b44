"""Small trainings and sweeps for the rounds, and their undisturbed records."""

import json
import os
import re
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from benchmarks.faults.processes import Command
from mtcon_ray.base.paths import (
    MLFLOW_DATABASE,
    MODEL_FILE,
    SPEC_FILE,
    cache_folder,
    checkpoint_folder,
    choose_root,
    event_file,
    shown,
    sweep_folder,
)
from mtcon_ray.records.event_log import identity, read_events
from mtcon_ray.records.events import Reported
from mtcon_ray.records.results import SweepResults, TrialResult, load_sweep
from mtcon_ray.tracking.mlflow_server import IDENTITY
from mtcon_ray.training import checkpoint

REPOSITORY = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "mtcon_ray")
NAME = "cut"
STORE_VARIABLE = "MTCON_RAY_FAULTS_STORE"  # the URL of the object store, if there is one
EMPTY = "empty.db"
MAKE = "import sys; from mtcon_ray.tracking.mlflow_server import check_server as c; c(sys.argv[1])"
# Metrics that depend on the load of the machine.
LOADS = ("images_per_second", "system/")
# A line of a trial in an event log, as `Event.to_line` writes it.
EPOCH = re.compile(rb'"kind": "report", "trial": "(trial-[0-9]+)"')

EPOCHS_IN_MLFLOW = """
SELECT substr(runs.name, instr(runs.name, '/') + 1) AS trial, metrics.step
FROM runs JOIN metrics USING (run_uuid) JOIN tags USING (run_uuid)
WHERE metrics.key = 'loss' AND runs.lifecycle_stage = 'active' AND tags.key = ? AND tags.value = ?
ORDER BY trial, metrics.step
"""

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "faults",
    "data": {"kind": "synthetic", "num_items": 400},
    "views": {"size": 16},
    "model": {"encoder": {"name": "small", "width": 8}},
    "train": {"epochs": 20, "batch_size": 32, "warmup_epochs": 1, "checkpoint_seconds": 0.2},
    "evaluate": {"every": 1, "bootstrap": 50},
    "resources": {"cpus": 1},
}
SEARCH = {
    "space": {"method.temperature": {"grid": [0.1, 0.5]}},
    "sampler": "grid",
    "max_concurrent": 2,
}


@dataclass(frozen=True)
class Job:
    """A command, its spec, and its words for starting and for resuming."""

    name: str
    command: str
    spec: Mapping[str, Any]
    starting: tuple[str, ...] = ()
    resuming: tuple[str, ...] = ("--resume",)

    @property
    def epochs(self) -> int:
        """The number of epochs of each trial."""
        return int(self.spec["train"]["epochs"])

    def folder(self, root: Path) -> Path:
        """Returns the folder of the sweep under a root."""
        return sweep_folder(root, NAME)

    def words(self, root: Path, spec: Path, *more: str) -> list[str]:
        """Returns the command line for a start, or for a resume if `more` has its words."""
        named = [self.command, str(spec), "--root", shown(root), "--name", NAME]
        return [*PROGRAM, *named, *(more or self.starting)]

    def write(self, folder: Path, **changes: Any) -> Path:
        """Writes the spec with `changes` to its sections, and returns its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / SPEC_FILE
        path.write_text(yaml.safe_dump({**self.spec, **changes}), encoding="utf-8")
        return path


TRAIN = Job("train", "train", {**SPEC, "train": {**SPEC["train"], "epochs": 30}})
SWEEP = Job("sweep", "sweep", {**SPEC, "search": SEARCH})
# Without Ray, which continues the sweep after a fault.
HERE = Job("sweep --here", "sweep", SWEEP.spec, starting=("--here",))
# An epoch takes over a second: even in a short epoch, tracking waits for the disk once.
TRACKED = Job(
    "train of longer epochs",
    "train",
    {**SPEC, "data": {**SPEC["data"], "num_items": 2400}, "train": {**SPEC["train"], "epochs": 15}},
)
SUBMITTED = replace(SWEEP, command="submit", resuming=())
PAIR = Job(
    "sweep of two workers",
    "sweep",
    {
        **SPEC,
        "train": {**SPEC["train"], "epochs": 8},
        "search": {**SEARCH, "max_concurrent": 1},
        "resources": {"cpus": 1, "workers": 2},
    },
)


class Undisturbed:
    """A job's run without a fault, made once and compared with all its rounds.

    `first`, `last` and `end` are the seconds from its start to the first epoch, to the last epoch
    and to the end of the command.
    """

    def __init__(self, folder: Path, job: Job) -> None:
        self.job = job
        self.folder = folder / "undisturbed" / job.name.replace(" ", "-")
        self.root = self.folder / "root"
        times = self.folder / "times.json"
        if not times.exists() or self._spec() != json.loads(json.dumps(job.spec)):
            self._run(times)
        self.first, self.last, self.end = json.loads(times.read_text(encoding="utf-8"))

    def _spec(self) -> Any:
        return yaml.safe_load((self.folder / SPEC_FILE).read_text(encoding="utf-8"))

    def _run(self, times: Path) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.root.mkdir(mode=0o700, parents=True)
        uri = f"sqlite:///{self.folder}/{EMPTY}"
        made = Command(
            (sys.executable, "-c", MAKE, uri), self.folder / "database.txt", environment(), uri
        )
        assert made.wait() == 0, made.printed()
        shutil.copy(self.folder / EMPTY, self.root / MLFLOW_DATABASE)
        spec, began = self.job.write(self.folder), time.time()
        words = self.job.words(self.root, spec)
        command = Command(words, self.folder / "output.txt", environment(), f"undisturbed-{began}")
        try:
            code = command.wait()
        finally:
            command.kill_all()
        assert code == 0, f"an undisturbed {self.job.name} failed:\n{command.printed()}"
        ended = time.time() - began
        written = [event.time_ms / 1000 - began for event in reports(self.run)]
        times.write_text(json.dumps([min(written), max(written), ended]), encoding="utf-8")

    def copy_beginnings(self, root: Path) -> None:
        """Copies the empty database and the decoded images to a root: making them is slow."""
        shutil.copy(self.folder / EMPTY, root / MLFLOW_DATABASE)
        shutil.copytree(cache_folder(self.root), cache_folder(root))

    @property
    def run(self) -> Path:
        """The folder of its records."""
        return self.job.folder(self.root)

    @cached_property
    def trials(self) -> dict[str, TrialResult]:
        """Its trials by their searched values."""
        return trials_of(self.job, self.root)

    @cached_property
    def networks(self) -> dict[str, Mapping[str, Any]]:
        """The parameters of each trial's network, by its searched values."""
        return {key: network_of(self.job, self.root, t) for key, t in self.trials.items()}


def root_of(folder: Path, name: str) -> Path:
    """Returns the root of a round: below its folder, or in the object store of these rounds."""
    url = os.environ.get(STORE_VARIABLE)
    return choose_root(f"{url}/{name}", str(folder)) if url else folder / "root"


def environment(**more: str) -> dict[str, str]:
    """Returns the variables with which a round's commands find this repository's code."""
    paths = [more.pop("site", ""), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "MLFLOW_DISABLE_TELEMETRY": "true"}
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths)), **quiet, **more}


def results_of(job: Job, root: Path) -> SweepResults:
    """Returns the results in the event log. Raises SweepError if there are none."""
    return load_sweep(job.folder(root))


def trials_of(job: Job, root: Path) -> dict[str, TrialResult]:
    """Returns the trials by their searched values, which have the same order in every run."""
    return {trial.configuration: trial for trial in results_of(job, root).trials}


def trial_folder(job: Job, root: Path, trial: str) -> Path:
    """Returns the folder of a trial's network and checkpoints."""
    return checkpoint_folder(job.folder(root), trial)


def network_of(job: Job, root: Path, trial: TrialResult) -> Mapping[str, Any]:
    """Returns a trial network's parameters. Raises CheckpointError without a complete file."""
    path = trial_folder(job, root, trial.name) / MODEL_FILE
    network: Mapping[str, Any] = checkpoint.load(path)["network"]
    return network


def reports(folder: Path) -> list[Reported]:
    """Returns the recorded epochs of all trials."""
    events = read_events(event_file(folder))
    return [event for event in events if isinstance(event, Reported) and event.trial]


def num_epochs(folder: Path) -> dict[str, int]:
    """Returns the number of recorded epochs of each trial that has any.

    It does not parse the events, because it is called very often.
    """
    path = event_file(folder)
    found = EPOCH.findall(path.read_bytes()) if path.exists() else []
    return {name.decode(): count for name, count in Counter(found).items()}


def epochs_in_mlflow(job: Job, root: Path) -> list[tuple[str, int]]:
    """Returns trial and epoch of each loss in the root's database, by trial and epoch."""
    own = (IDENTITY, identity(event_file(job.folder(root))))
    with closing(sqlite3.connect(root / MLFLOW_DATABASE)) as database:
        return database.execute(EPOCHS_IN_MLFLOW, own).fetchall()


def lasting(metrics: Mapping[str, float]) -> dict[str, float]:
    """Returns the metrics that every run must reproduce."""
    return {name: value for name, value in metrics.items() if not name.startswith(LOADS)}
