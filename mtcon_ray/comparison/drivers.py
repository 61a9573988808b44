"""Sweeps of a comparison beside each other on a cluster, each driven by a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from mtcon_ray.capacity import ClusterView, check_cluster
from mtcon_ray.comparison.spec import Comparison
from mtcon_ray.errors import MtconError
from mtcon_ray.local import LOCAL
from mtcon_ray.paths import sweep_folder
from mtcon_ray.plugins import allowed_folders
from mtcon_ray.results import SweepResults, load_sweep
from mtcon_ray.root_files import below, make_folder, write
from mtcon_ray.search.spec import SearchSpec
from mtcon_ray.signals import Interrupted
from mtcon_ray.spec import RunSpec, dump_spec, with_values

# A driver takes about 400 MB of memory on this machine, and seconds of a core to start.
MAX_DRIVERS = 8


def drivers_at_a_time(comparison: Comparison, cluster: ClusterView) -> int:
    """Returns how many systems are trained at a time: as many as fit a cluster with all trials.

    On this machine alone it is 1: each driver would start its own Ray, and these would not share
    the cores.
    """
    if cluster.where == LOCAL:
        return 1
    room = [min(MAX_DRIVERS, len(comparison.specs))]
    for title, spec in comparison.specs.items():
        tuning = comparison.tuning.get(title)
        stages = (tuning.first, tuning.again, spec) if tuning else (spec,)
        fitting = check_cluster(with_values(spec, {"search.max_concurrent": None}), cluster)
        if fitting is not None:
            room.append(fitting // max(_most_trials(stage.search) for stage in stages if stage))
    return max(1, min(room))


def _most_trials(search: SearchSpec) -> int:
    """Returns how many trials of a sweep can train at the same time, given the room."""
    planned = search.num_planned_trials
    return min(planned, search.max_concurrent or planned)


class Drivers:
    """Runs sweeps by `mtcon-ray sweep`, from several threads; `folder` gets specs and logs.

    `on_start` is called with a text when a sweep starts. `have_run` is True once one has started.
    """

    def __init__(self, root: Path, folder: Path, on_start: Callable[[str], None]) -> None:
        self._root = root
        self._folder = folder
        self._on_start = on_start
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped_by: str | None = None
        self._lock = threading.Lock()
        self.have_run = False

    def train(self, spec: RunSpec, what: str) -> SweepResults:
        """Runs or resumes a sweep to its end and returns its results.

        Raises MtconError with the driver's error, Interrupted after `stop`.
        """
        file, log = (self._folder / f"{spec.name}.{suffix}" for suffix in ("yaml", "log"))
        make_folder(self._folder)
        write(file, json.dumps(dump_spec(spec), indent=1))
        command = [sys.executable, "-P", "-m", "mtcon_ray", "--quiet", "sweep", str(file)]
        options = ["--continue", "--name", spec.name, "--root", str(self._root)]
        environment, folders = dict(os.environ), allowed_folders()
        if folders is not None:
            options.append("--allow-plugins")
            # The driver's spec lies in another folder than that of the comparison.
            before = filter(None, [environment.get("PYTHONPATH")])
            environment["PYTHONPATH"] = os.pathsep.join([*before, *folders])
        with open(log, "w", encoding="utf-8", opener=below) as written:
            with self._lock:
                self._raise_if_stopped()
                # In a session of its own, so that Ctrl-C reaches it once, from `stop`.
                driver = subprocess.Popen(
                    [*command, *options],
                    stdout=written,
                    stderr=written,
                    env=environment,
                    start_new_session=True,
                )
                self._running.add(driver)
                self.have_run = True
            self._on_start(f"{what} (log: {log})")
            code = driver.wait()
        with self._lock:
            self._running.remove(driver)
            self._raise_if_stopped()
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
        # Without a winner the code is 1, too, and the results have the reason of each trial.
        if code and (errors or code != 1):
            raise MtconError(errors[-1] if errors else f"its driver ended with code {code}: {log}")
        return load_sweep(sweep_folder(self._root, spec.name))

    def stop(self, reason: str) -> None:
        """Asks all drivers to checkpoint and end; no other one starts."""
        with self._lock:
            self._stopped_by = reason
            for driver in self._running:
                os.kill(driver.pid, signal.SIGTERM)

    def _raise_if_stopped(self) -> None:
        if self._stopped_by is not None:
            raise stopped(f"stopped by {self._stopped_by}")


def stopped(reason: str) -> Interrupted:
    """Returns the error that ends a comparison; `reason` names the signal."""
    return Interrupted(f"{reason}; trials are checkpointed; to go on: repeat the command")
