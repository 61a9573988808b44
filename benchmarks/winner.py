"""Time from a command to the winner of a sweep: `mtcon-ray sweep`, and a script of the guides.

Both run the same job on the photographs: four temperatures, four epochs, two trials at a time with
a thread each, in float32, tracked by MLflow in SQLite. Encoder, heads, views, losses and optimizer
are the same. The loss is MTCon with equal weights, which is the sum of SupContrast's loss over the
tasks. The peer is `benchmarks/peers/winner_script.py`. Each command is a separate process with an
empty folder, so ours also decodes the images. They run in turns.

Both probe the encoder once, after the last epoch. In addition to the val probes for ranking the
trials, ours measures test scores with a choice of five penalties, neighbours and bootstraps.

Our first training step begins at the first epoch's report minus its seconds of training. A trial's
seconds are the time in its slot: from the first step of all trials to the last trial's end, times
the trials at a time, divided by the number of trials. They include the start of the peer's process
for each further trial, but not the start of the command. In these seconds, training includes its
tracking and checkpoints, and our last checkpoint counts as part of the probe.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd

from benchmarks import machine
from benchmarks.search import FIELD
from benchmarks.table import markdown
from benchmarks.timing import Times, ratio
from mtcon_ray.base import metrics
from mtcon_ray.base.paths import event_file, sweep_folder
from mtcon_ray.records.event_log import by_trial, read_events
from mtcon_ray.records.events import Reported
from mtcon_ray.records.results import load_sweep
from mtcon_ray.tracking.mlflow_server import quiet_environment

REPOSITORY = Path(__file__).parents[1]
NAME = "winner"
OURS, PEER = "mtcon-ray", "script"
# Lower bound on the peer's seconds per trial divided by ours.
AIM = 2.5
# The probes differ in items, penalty and seed, so the winners' values agree only roughly.
TOLERANCE = 0.1


@dataclass(frozen=True)
class Job:
    """A sweep over temperatures on the images of a folder; all rows of `csv` have all labels."""

    csv: str
    images: str
    tasks: tuple[str, ...] = ("category", "gender", "colour")
    temperatures: tuple[float, ...] = (0.05, 0.1, 0.2, 0.5)
    epochs: int = 4
    size: int = 40
    encoder: str = "small"
    width: int = 8
    """Width of the small encoder."""
    head_dim: int = 32
    batch_size: int = 64
    lr: float = 0.2
    at_once: int = 2
    cpus: int = 1
    gpus: float = 0.0
    """Share of a GPU for each trial."""


class Trial(NamedTuple):
    """A trial with its temperature, its accuracy on val, and three times in Unix seconds.

    `began` is the start of its first step, `first` the end of its first epoch, `trained` of its
    last one.
    """

    temperature: float
    accuracy: float
    began: float
    first: float
    trained: float
    ended: float


class Command(NamedTuple):
    """A run of a command: Unix seconds of its start and end, and its trials."""

    began: float
    ended: float
    trials: tuple[Trial, ...]

    @property
    def winner(self) -> Trial:
        """The trial with the highest accuracy."""
        return max(self.trials, key=lambda trial: trial.accuracy)

    def seconds(self, at_once: int) -> dict[str, float]:
        """Returns the table's seconds by row."""
        first, last = min(t.began for t in self.trials), max(t.ended for t in self.trials)
        return {
            "the whole command": self.ended - self.began,
            "until the first training step": first - self.began,
            "a trial": at_once * (last - first) / len(self.trials),
            "of it training": fmean(t.trained - t.began for t in self.trials),
            "of it the probe": fmean(t.ended - t.trained for t in self.trials),
        }


def measure(rounds: int = 3, width: int = 8) -> str:
    """Returns the table. A round takes some five minutes on two cores."""
    if not machine.PHOTOS.exists():
        return f"needs the photographs in {machine.PHOTOS}: not run"
    with TemporaryDirectory() as folder:
        return compare(photographs_job(Path(folder), width), rounds)


def photographs_job(folder: Path, width: int) -> Job:
    """Unpacks the photographs to `folder` and returns the job.

    Leaves out rows with an unknown label, because SupContrast's loss has no missing labels.
    """
    shutil.unpack_archive(machine.PHOTOS / "images.tar.gz", folder, filter="data")
    job = Job(str(folder / "labels.csv"), str(folder), width=width)
    table = pd.read_csv(machine.PHOTOS / "labels.csv").dropna(subset=list(job.tasks))
    table.to_csv(job.csv, index=False)
    return job


def compare(job: Job, rounds: int) -> str:
    """Runs both commands in turns and returns the table.

    Raises AssertionError if a command fails, or if the winners' accuracies differ by more than
    TOLERANCE.
    """
    runs: dict[str, list[Command]] = {OURS: [], PEER: []}
    ways: dict[str, Callable[[Job, Path], Command]] = {OURS: run_sweep, PEER: run_script}
    for _ in range(rounds):
        for name, way in ways.items():
            with TemporaryDirectory() as folder:
                runs[name].append(way(job, Path(folder)))
        ours, peer = (runs[name][-1].winner for name in ways)
        assert abs(ours.accuracy - peer.accuracy) <= TOLERANCE, (ours, peer)
    return table(runs, job)


def table(runs: dict[str, list[Command]], job: Job) -> str:
    """Returns the table of medians over rounds, followed by the winners of the last round."""
    ours, peer = ([run.seconds(job.at_once) for run in runs[name]] for name in (OURS, PEER))
    rows = []
    for row in ours[0]:
        one, other = (Times(tuple(each[row] for each in some)) for some in (ours, peer))
        rows.append((row, f"{one.median:.1f}", f"{other.median:.1f}", str(ratio(other, one))))
    title = f"{len(job.temperatures)} temperatures, {job.epochs} epochs, {job.size} px"
    header = (f"{title}, width {job.width}", f"{OURS}, s", f"{PEER}, s", "ours is faster by")
    winners = (
        f"{name}: {run[-1].winner.temperature:g} with {run[-1].winner.accuracy:.3f} on val"
        for name, run in runs.items()
    )
    return f"{markdown(header, rows)}\n\nWinners: {'; '.join(winners)} (aim: {AIM:g} for a trial)"


def run_sweep(job: Job, folder: Path, extra: Mapping[str, str] | None = None) -> Command:
    """Runs our command in an empty folder, and reads the times from its event log.

    `extra` has further variables of the environment.
    """
    # JSON is YAML.
    (folder / "job.yaml").write_text(json.dumps(spec_of(job)), encoding="utf-8")
    command = ("mtcon_ray", "sweep", str(folder / "job.yaml"))
    began, ended = _run((*command, "--root", str(folder), "--name", NAME), extra)
    sweep = sweep_folder(folder, NAME)
    steps = (pd.read_csv(job.csv)["split"] == "train").sum() // job.batch_size
    trials, events = [], by_trial(read_events(event_file(sweep)))
    for result in load_sweep(sweep).trials:
        assert result.value is not None, result
        reports = [event for event in events[result.name] if isinstance(event, Reported)]
        training = [
            steps * job.batch_size / each.metrics[metrics.IMAGES_PER_SECOND] for each in reports
        ]
        *before, last = [each.time_ms / 1000 for each in reports]
        times = before[0] - training[0], before[0], before[-1] + training[-1], last
        trials.append(Trial(result.params[FIELD], result.value, *times))
    return Command(began, ended, tuple(trials))


def spec_of(job: Job) -> dict[str, Any]:
    """Returns the job as a spec of this project."""
    views = {"crop_scale": [0.4, 1.0], "brightness": 0.2, "contrast": 0.2, "hue": 0.02,
             "saturation": 0.2, "grayscale": 0.0}  # fmt: skip
    is_small = job.encoder == "small"
    encoder = {"name": job.encoder, **({"width": job.width} if is_small else {})}
    fast = {"precision": "bfloat16", "compile": "graphs"}
    return {
        "name": NAME,
        "data": {
            "kind": "table",
            "csv": job.csv,
            "images": job.images,
            "tasks": list(job.tasks),
            "split_column": "split",
        },
        "views": {"size": job.size, **views},
        "model": {"encoder": encoder, "head_dim": job.head_dim},
        "method": {"name": "mtcon", "weighting": "equal"},
        "train": {
            "epochs": job.epochs,
            "warmup_epochs": 1,
            "batch_size": job.batch_size,
            "lr": job.lr,
            **(fast if job.gpus else {"precision": "float32"}),
        },
        # Only after the last epoch, as in the script.
        "evaluate": {"every": job.epochs},
        "search": {
            "sampler": "grid",
            "space": {FIELD: {"grid": list(job.temperatures)}},
            "max_concurrent": job.at_once,
            "scheduler": {"name": "none"},
        },
        "resources": {"cpus": job.cpus, "gpus": job.gpus},
    }


def run_script(job: Job, folder: Path, extra: Mapping[str, str] | None = None) -> Command:
    """Runs the peer in an empty folder, and reads the times from its trials' reports."""
    (folder / "job.json").write_text(json.dumps(asdict(job)), encoding="utf-8")
    began, ended = _run(("benchmarks.peers.winner_script", str(folder / "job.json")), extra)
    results = json.loads((folder / "results.json").read_text())
    names = ("temperature", "val_accuracy", "began", "first", "trained", "ended")
    trials = [Trial(*(result[name] for name in names)) for result in results]
    assert len(trials) == len(job.temperatures)
    return Command(began, ended, tuple(trials))


def _run(command: Sequence[str], extra: Mapping[str, str] | None) -> tuple[float, float]:
    """Runs a module as a command, and returns its start and end in Unix seconds."""
    environment = {**os.environ, **quiet_environment(), **(extra or {})}
    for elsewhere in ("MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
        environment.pop(elsewhere, None)
    began = time.time()
    done = subprocess.run(
        (sys.executable, "-m", *command),
        cwd=REPOSITORY, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    # CalledProcessError would not show the output with a failed trial's traceback.
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout}\n{done.stderr}"
    return began, time.time()
