"""`python -m benchmarks faults`: breaks real runs at random moments, audits, and records.

Each round starts a tiny training or sweep as a process and breaks it at a moment drawn from the
seed. It resumes the run or waits for its recovery, runs `mtcon-ray audit`, and compares all
parameters bit for bit with an undisturbed run. The folder has a line per finished round, and a new
start runs the missing rounds. A failed round leaves its files. Delete its line to run it again.
"""

import argparse
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from benchmarks.faults import damage, failures, kills, nodes, stops, tracking
from benchmarks.faults.jobs import STORE_VARIABLE
from benchmarks.faults.load import Load
from benchmarks.faults.rounds import Outcome, Round, planned, recorded, run_missing, table
from benchmarks.gpu.bench import cache_folder
from benchmarks.machine import describe_machine
from mtcon_ray.tracking.provenance import provenance

Kind = Callable[[Path, Round, Outcome], None]
LOAD = "load"
KINDS: dict[str, Kind] = {
    "driver": kills.driver,
    "driver-and-ray": kills.driver_and_ray,
    "ray": kills.ray,
    "node": nodes.node,
    "trial": kills.trial,
    "rank": kills.rank,
    "register": kills.register,
    "preempted": nodes.preempted,
    "cut-off": nodes.cut_off,
    "memory": failures.memory,
    "signals": stops.signals,
    "job-stop": stops.job_stop,
    "pipe": stops.pipe,
    "mlflow": tracking.mlflow,
    "disk": damage.disk,
    "damage": damage.damage,
    "trial-error": failures.trial_error,
    "twice": stops.twice,
    LOAD: Load(),
}
# Kinds that also run with a root in an object store.
STORED = ("driver", "driver-and-ray", "trial", "rank", "register", "signals")
ROUNDS = 3


def main(arguments: Sequence[str]) -> bool:
    """Runs the missing rounds and prints the table. Returns False if a round failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks faults", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=cache_folder() / "faults")
    parser.add_argument("--store", action="store_true", help="with roots in an object store")
    usual = Load()
    parser.add_argument("--trials", type=int, default=usual.trials, help="of load")
    parser.add_argument("--at-a-time", type=int, default=usual.at_a_time, help="trials of load")
    parser.add_argument("--every", type=float, default=usual.every, help="seconds of load")
    options = parser.parse_args(arguments)
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"KIND must be one of {', '.join(KINDS)}, got {kind}")
        if options.store and kind not in STORED:
            parser.error(f"with --store KIND must be one of {', '.join(STORED)}, got {kind}")
    folder = options.folder.absolute() / ("store" if options.store else "")
    kinds = options.kinds or list(STORED if options.store else KINDS)
    chosen = KINDS | {LOAD: Load(options.trials, options.at_a_time, options.every)}
    breaks = {kind: partial(_round, folder, chosen[kind]) for kind in kinds}
    commit = provenance(Path(__file__).parent).get("mtcon.git.commit", "")[:7]
    print(f"{describe_machine()}\n", flush=True)
    rounds = planned(kinds, options.rounds, options.seed)
    with store() if options.store else nullcontext():
        show = partial(print, flush=True)
        is_good = run_missing(folder, rounds, breaks, commit=commit, show=show)
    print(f"\n{table(recorded(folder), list(KINDS))}", flush=True)
    return is_good


@contextmanager
def store() -> Iterator[None]:
    """Starts an S3 server in memory, which the rounds find by their environment."""
    import boto3
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    os.environ.update(
        {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "faults",
            "AWS_SECRET_ACCESS_KEY": "faults",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            STORE_VARIABLE: "s3://faults/rounds",
        }
    )
    boto3.client("s3").create_bucket(Bucket="faults")
    try:
        yield
    finally:
        server.stop()


def _round(folder: Path, kind: Kind, round_: Round, outcome: Outcome) -> None:
    """Runs a round in a new folder, and removes its files if it has passed."""
    files = folder / "rounds" / round_.name
    shutil.rmtree(files, ignore_errors=True)
    kind(folder, round_, outcome)
    if outcome.passed:
        shutil.rmtree(files)
