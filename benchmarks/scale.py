"""A sweep of 1,000 trials: do later trials cost more time or more of the driver's memory?

A whole sweep with tracking in SQLite, with only the training replaced. Each trial reports five
epochs of made-up curves. The trials run in turn. With two at a time, a trial would end before a
second process has started, and Tune would start and drop processes during the measurement. The
sampler alternates between TPE, which fits its model to earlier trials, and random values, which
show the cost of the service alone. Three rounds are run and a fixed loop is timed at each trial's
end, because a shared machine's speed may double or halve during a sweep. Afterwards the first
sweep's report is built again, the commands for reading a sweep run as users run them, and a real
MLflow server returns its table of runs. The last table is from `many_trials`.
"""

import json
import math
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple
from unittest.mock import patch

from benchmarks import idle_trial, many_trials
from benchmarks.mlflow_server import mlflow_server
from benchmarks.table import markdown
from benchmarks.timing import Ratio, resident_bytes
from mtcon_ray.base import metrics
from mtcon_ray.base.callbacks import Callbacks
from mtcon_ray.display.build import build_report
from mtcon_ray.records.results import load_sweep
from mtcon_ray.spec.run_spec import RunSpec, with_values
from mtcon_ray.sweep import on_ray, run
from mtcon_ray.sweep.trainable import ReusedTrainable
from mtcon_ray.sweep.trial import Assignment, reports, trial_device
from mtcon_ray.tracking.mlflow_server import open_client
from mtcon_ray.training.trainer import Progress

MARKS = (200, 500, 1000)  # the sender to MLflow still has a backlog in the first hundred
WINDOW = 100  # trials before a mark over which the seconds per trial are averaged
EPOCHS = 5
LOOP = range(50_000)
AT_ONCE = 1
ROUNDS = 3
ALL = many_trials.Sizes()
SMALLEST = many_trials.Sizes(6, 3, 4, (4,), 15, 2, (2, 4, 1), 1, 1)
PAGE = 100  # runs in the first request for MLflow's table


class CurveRun(idle_trial.IdleRun):
    """Stand-in for a training: a saturating curve with a height computed from the temperature."""

    def __iter__(self) -> Iterator[Progress]:
        height = 0.8 - 0.1 * abs(math.log10(self.spec.method.model_dump()["temperature"] / 0.2))
        for epoch in range(1, EPOCHS + 1):
            values = idle_trial.epoch_metrics(epoch)
            values[metrics.MEAN_ACCURACY] = height * (1 - 0.5**epoch)
            yield self.progress(epoch, values, EPOCHS)


class CurveTrial(ReusedTrainable):
    """The project's trial with nothing to train."""

    def _train(self, work: Assignment) -> Generator[dict[str, Any], None, None]:
        device = trial_device(work.spec.resources.gpus)
        return reports(work, device=device, make_run=CurveRun)


@dataclass
class Growth(Callbacks):
    """The moment, a loop's seconds and the driver's resident bytes at the end of each trial.

    Also the processor time of the driver's main thread, which excludes sending to MLflow.
    """

    ends: list[float] = field(default_factory=list)
    main_thread: list[float] = field(default_factory=list)
    loops: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)
    closing: float = 0.0  # seconds from the end of the last trial to the results

    def on_end(self, trial: str, status: str, value: float | None, reason: str | None) -> None:
        begin = perf_counter()
        sum(LOOP)  # in C, without a switch to another thread
        self.ends.append(perf_counter())
        self.main_thread.append(time.thread_time())
        self.loops.append(self.ends[-1] - begin)
        self.resident.append(resident_bytes())

    def cost(self, mark: int) -> "Cost":
        """Returns the cost over the WINDOW before a mark, without the first AT_ONCE trials."""
        first = max(AT_ONCE, mark - WINDOW)
        seconds, busy = (
            (each[mark - 1] - each[first - 1]) / (mark - first)
            for each in (self.ends, self.main_thread)
        )
        loops = seconds / median(self.loops[first:mark])
        return Cost(seconds, loops, busy, self.resident[mark - 1] / 2**20)


class Cost(NamedTuple):
    """Cost of a trial at a stage of a sweep, and the driver's memory at this stage."""

    seconds: float
    loops: float  # the same seconds, in units of these trials' median loop
    main_thread: float  # seconds of the main thread's processor time
    resident: float  # MiB


def sweep_spec(num_trials: int, sampler: str) -> RunSpec:
    """Returns a sweep over temperatures with ASHA."""
    changes = {
        "name": "scale",
        "train.epochs": EPOCHS,
        "search.max_concurrent": AT_ONCE,
        "search.sampler": sampler,
    }
    return with_values(idle_trial.sweep_spec(num_trials), changes)


def run_sweep(root: Path, num_trials: int, sampler: str) -> tuple[Growth, Counter[str]]:
    """Runs a sweep. Returns its costs by stage, and the calls of MLflow's client by name."""
    growth, calls = Growth(), Counter[str]()
    with (
        patch.object(on_ray, "ReusedTrainable", CurveTrial),
        patch(
            "mtcon_ray.tracking.mlflow_server.open_client",
            lambda uri: _Counting(open_client(uri), calls),
        ),
    ):
        results = run.run_sweep(sweep_spec(num_trials, sampler), root=root, callbacks=growth)
    growth.closing = perf_counter() - growth.ends[-1]
    assert len(results.trials) == len(growth.ends) == num_trials
    idle_trial.check_tracked_runs(root, num_trials)
    return growth, calls


class _Counting:
    """MLflow's client with a count of its calls."""

    def __init__(self, client: Any, calls: Counter[str]) -> None:
        self._client, self._calls = client, calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._client, name)


def growth_rows(growths: list[Growth], marks: tuple[int, ...]) -> list[tuple[str, ...]]:
    """Returns a row of medians per mark, then the ratios of the last mark to the first mark."""
    costs = [[growth.cost(mark) for mark in marks] for growth in growths]
    rows = []
    for mark, of_rounds in zip(marks, zip(*costs, strict=True), strict=True):
        cost = Cost(*(median(each) for each in zip(*of_rounds, strict=True)))
        cells = (f"{cost.seconds:.3f}", f"{cost.loops:.0f}", f"{1e3 * cost.main_thread:.1f}")
        rows.append((f"up to trial {mark:,}", *cells, f"{cost.resident:.0f}"))
    ratios = [[b / a for a, b in zip(of[0][:3], of[-1][:3], strict=True)] for of in costs]
    times = [str(Ratio(median(each), min(each), max(each))) for each in zip(*ratios, strict=True)]
    num_between = marks[-1] - marks[-2]
    added = [1024 * (of[-1].resident - of[-2].resident) / num_between for of in costs]
    memory = f"{median(added):.0f} ({min(added):.0f} to {max(added):.0f})"
    return [*rows, ("last over first; KiB a trial between the last two", *times, memory)]


def measure_reading(root: Path) -> list[tuple[str, str]]:
    """Returns the seconds of reading a sweep, with imports if a command reads it."""
    folder = root / "sweeps" / "scale-1"
    begin = perf_counter()
    results = load_sweep(folder)
    page = build_report(results, ui_command="mlflow server")
    rows = [
        ("report (aim: below 30)", f"{perf_counter() - begin:.1f}"),
        ("the report's page, MiB", f"{page.stat().st_size / 2**20:.1f}"),
    ]
    for name in (["status", folder.name], ["best", folder.name], ["list"]):
        begin = perf_counter()
        command = [sys.executable, "-m", "mtcon_ray", *name, "--root", str(root)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows.append((f"mtcon-ray {name[0]}", f"{perf_counter() - begin:.1f}"))
    return [*rows, *measure_ui(root)]


def measure_ui(root: Path) -> list[tuple[str, str]]:
    """Returns the seconds of the requests for the MLflow UI's table of runs, medians of five."""
    with mlflow_server(f"sqlite:///{root}/mlflow.db") as address:
        found = _post(f"{address}/api/2.0/mlflow/experiments/search", {"max_results": 10})
        ids = [e["experiment_id"] for e in found["experiments"] if e["name"] == "mtcon-ray"]
        pages: dict[str, dict[str, Any]] = {
            f"first {PAGE} runs": {},
            f"best {PAGE} runs": {"order_by": [f"metrics.`{metrics.MEAN_ACCURACY}` DESC"]},
            "all 1,000 runs": {"max_results": 1000},
        }
        return [
            (f"MLflow's server: {what}", f"{_median_seconds(address, ids, asked):.2f}")
            for what, asked in pages.items()
        ]


def _median_seconds(address: str, ids: list[str], asked: dict[str, Any]) -> float:
    body = {"experiment_ids": ids, "max_results": PAGE, **asked}
    seconds = []
    for _ in range(5):
        begin = perf_counter()
        assert _post(f"{address}/api/2.0/mlflow/runs/search", body)["runs"]
        seconds.append(perf_counter() - begin)
    return median(seconds)


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def measure(
    marks: tuple[int, ...] = MARKS, rounds: int = ROUNDS, sizes: many_trials.Sizes = ALL
) -> str:
    """Returns the tables. Takes an hour."""
    growths: dict[str, list[Growth]] = {"tpe": [], "random": []}
    rows: list[tuple[str, str]] = []
    for _ in range(rounds):
        for sampler, of_rounds in growths.items():
            with TemporaryDirectory() as folder:
                growth, calls = run_sweep(Path(folder), marks[-1], sampler)
                of_rounds.append(growth)
                rows = rows or [*_call_rows(calls, marks[-1]), *measure_reading(Path(folder))]
    closing = [growth.closing for of_rounds in growths.values() for growth in of_rounds]
    rows.append(("from the last trial's end to the results (aim: 10)", f"{median(closing):.1f}"))
    return "\n\n".join(
        [
            _growth_table("TPE", growths["tpe"], marks),
            _growth_table("random", growths["random"], marks),
            markdown((f"Afterwards, {marks[-1]:,} trials", "seconds"), rows),
            many_trials.measure(sizes),
        ]
    )


def _call_rows(calls: Counter[str], num_trials: int) -> list[tuple[str, str]]:
    batches = f"{calls['log_batch'] / num_trials:.1f} batches among them"
    name = f"calls of MLflow's client per trial, {batches}"
    return [(name, f"{calls.total() / num_trials:.1f}")]


def _growth_table(sampler: str, growths: list[Growth], marks: tuple[int, ...]) -> str:
    title = f"{sampler}: {marks[-1]:,} trials of {EPOCHS} epochs"
    return markdown(
        (
            title,
            "s per trial",
            "in fixed loops",
            "driver's main thread, ms",
            "driver's memory, MiB",
        ),
        growth_rows(growths, marks),
    )
