"""`python -m benchmarks fuzz [KIND ...]`: damages files and reads them by the commands.

A case damages a copy of a user's files or of a root, as its kind and seed determine. A command
passes if it succeeds. It also passes if it ends with the exit code 1 or 2, a single clear error and
nothing new under `sweeps/`. A failed case prints the line for repeating it, and leaves
its files in the folder.
"""

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.fuzz.cases import KINDS, Case, planned
from benchmarks.fuzz.worker import Outcome, make_base, preload, run_case
from benchmarks.machine import describe_machine
from benchmarks.table import markdown

ROUNDS, LIMIT = 500, 20.0
HEADER = ("file", "cases", "commands", "accepted", "failed cases", "median s", "slowest s")


def main(arguments: Sequence[str]) -> bool:
    """Runs the cases and prints a table. Returns False if a case failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks fuzz", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="number of cases, all together")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--folder", type=Path, help="for failed cases; default: nothing is kept")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of one command")
    options = parser.parse_args(arguments)
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"KIND must be one of {', '.join(KINDS)}, got {kind}")
    cases = planned(options.kinds or list(KINDS), options.rounds, options.seed)
    print(f"{describe_machine()}\n", flush=True)
    with TemporaryDirectory() as temporary:
        outcomes = run(cases, (options.folder or Path(temporary)).absolute(), options.limit)
    print(f"\n{table(outcomes)}", flush=True)
    return not any(outcome.problems for outcome in outcomes)


def run(cases: Sequence[Case], folder: Path, limit: float = LIMIT) -> list[Outcome]:
    """Runs cases in turn and prints the failed cases, which leave their files in `folder`."""
    base, outcomes = folder / "base", []
    folder.mkdir(parents=True, exist_ok=True)
    preload()
    if not base.exists():
        make_base(base)
    for case in cases:
        own = folder / f"{case.kind}-{case.seed}"
        outcomes.append(run_case(case, base, own, limit))
        if outcomes[-1].problems:
            print("\n".join(lines(outcomes[-1])), flush=True)
        else:
            shutil.rmtree(own)
    return outcomes


def lines(outcome: Outcome) -> list[str]:
    """Returns the description of a failed case, with the command for repeating it."""
    case = outcome.case
    again = f"python -m benchmarks fuzz --rounds 1 --seed {case.seed} {case.kind}"
    found = [f"  {problem}" for problem in outcome.problems]
    return [f"FAILED {case.kind} {case.seed}: {outcome.damage}", *found, f"  again: {again}"]


def table(outcomes: Sequence[Outcome]) -> str:
    """Returns a row per kind of file, and a row for all kinds."""
    rows = []
    for kind in (*KINDS, "all"):
        own = [outcome for outcome in outcomes if kind in (outcome.case.kind, "all")]
        seconds = [each for outcome in own for each in outcome.seconds]
        if not seconds:
            continue
        failed, accepted = sum(bool(o.problems) for o in own), sum(o.accepted for o in own)
        counts = (len(own), len(seconds), accepted, failed)
        rows.append((kind, *map(str, counts), f"{median(seconds):.2f}", f"{max(seconds):.1f}"))
    return markdown(HEADER, rows)
