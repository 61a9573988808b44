"""Row `winner`: the time from a command to the winner of a sweep that shares the GPU.

The job of `benchmarks winner` with a ResNet-18 at 64 pixels, 16 temperatures, eight trials at a
time. Each line is a command. A line of the script has the ratio to our commands before it.
"""

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import machine
from benchmarks.gpu.bench import Bench, Lines
from benchmarks.gpu.processes import MPS, Environment, with_mps, without_mps
from benchmarks.gpu.speed import busy_shares
from benchmarks.machine import usable_cores

AT_ONCE, NUM_TEMPERATURES, EPOCHS = 8, 16, 12
OURS = "mtcon-ray"
NOT_THERE = "not run: the photographs are not there"


def winner(bench: Bench) -> Lines:
    """Times our command with and without MPS, and a script of the guides."""
    for who, how, environment in (
        (OURS, "with MPS", with_mps),
        (OURS, "without MPS", without_mps),
        ("script", "without MPS", without_mps),
    ):
        yield f"{who}, {how}", partial(_winner, bench, who, how, environment)


def _winner(bench: Bench, who: str, how: str, environment: Callable[[], Environment]) -> str:
    # Late: they import Ray's and MLflow's parts, which other rows do not need.
    from benchmarks import winner as job_winner

    if not machine.PHOTOS.exists():
        return NOT_THERE
    run = job_winner.run_sweep if who == OURS else job_winner.run_script
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        variables = stack.enter_context(environment())
        if variables is None:
            return f"not run: {MPS} is not there"
        fields: dict[str, Any] = {
            "temperatures": tuple(round(0.02 * 1.3**i, 3) for i in range(NUM_TEMPERATURES)),
            "epochs": EPOCHS,
            "at_once": AT_ONCE,
            "size": 64,
            "encoder": "resnet18",
            "lr": 0.05,
            "cpus": max(1, usable_cores() // AT_ONCE),
            "gpus": 1 / AT_ONCE,
        }
        photographs = job_winner.photographs_job(folder, width=8)
        job = replace(photographs, **{**fields, **bench.winner})
        with busy_shares(bench.device) as shares:
            found = run(job, Path(stack.enter_context(TemporaryDirectory())), variables)
    began, ended = min(t.began for t in found.trials), max(t.trained for t in found.trials)
    inside = [share for at, share in shares if began <= at <= ended]
    busy = f"{fmean(inside):.0f} %" if inside else "unknown"
    kept = bench.kept / "winner.json"
    is_first = who == OURS and environment is with_mps
    seconds = json.loads(kept.read_text()) if kept.exists() and not is_first else {}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({**seconds, f"{who}, {how}": ended - began}))
    ratios = [
        f"{(ended - began) / value:.2f} of {name}"
        for name, value in seconds.items()
        if who != OURS and name.startswith(OURS)
    ]
    training = ", ".join([f"{ended - began:.1f} s from the first step to the last", *ratios])
    return (
        f"{found.ended - found.began:.0f} s in all; first step after {began - found.began:.1f} s, "
        f"first epoch after {min(t.first for t in found.trials) - found.began:.1f} s; {training}; "
        f"{3600 * len(found.trials) / (found.ended - found.began):.0f} trials per hour; GPU busy "
        f"{busy}; winner {found.winner.temperature:g} with {found.winner.accuracy:.3f} on val"
    )
