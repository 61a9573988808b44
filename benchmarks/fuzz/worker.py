"""A process per case: a crash or a hang of a command ends only this process and is reported."""

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.fuzz.base import write_base
from benchmarks.fuzz.cases import Case
from benchmarks.fuzz.check import enter, run_commands
from benchmarks.fuzz.damage import copy_base

# Limit of a case's process. Reading a file of some kilobytes must not need more memory.
MAX_BYTES = 6 << 30
# Imported once, before the processes are forked, because each import takes seconds.
PRELOADED = (
    "mtcon_ray.api", "mtcon_ray.export.trained_network", "mtcon_ray.export.write",
    "mtcon_ray.sweep.audit", "mtcon_ray.sweep.optuna_study", "mtcon_ray.sweep.run",
    "mtcon_ray.sweep.optuna_study", "mtcon_ray.sweep.audit",
    "pandas", "matplotlib.pyplot",
)  # fmt: skip


@dataclass
class Outcome:
    """Result of a case: its damage, the commands' seconds, how many were accepted, problems."""

    case: Case
    damage: str = ""
    seconds: list[float] = field(default_factory=list)
    accepted: int = 0
    problems: list[str] = field(default_factory=list)


def preload() -> None:
    """Imports the modules that the commands import."""
    for name in PRELOADED:
        import_module(name)


def make_base(folder: Path) -> None:
    """Writes the undamaged files in a separate process, because it trains.

    Raises AssertionError after a failure.
    """
    part = folder.with_name(f"{folder.name}.part")
    said = [*forked(lambda tell: write_base(part), limit=600, output=folder.with_name("base.log"))]
    assert not said, f"the undamaged files cannot be written: {said}; see {folder.parent}/base.log"
    part.rename(folder)


def run_case(case: Case, base: Path, folder: Path, limit: float) -> Outcome:
    """Runs a case in a separate process, with `limit` seconds for each command."""
    outcome, running = Outcome(case), "the damage"

    def work(tell: Callable[..., None]) -> None:
        copy_base(base, folder)
        marker = folder / "marker"
        tell("damage", case.damage(folder, marker))
        enter(folder)
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
        for told in run_commands(folder, case.commands, marker):
            tell("command", *told)

    log = folder.with_name(f"{folder.name}.log")
    for what, *told in forked(work, limit, log):
        match what:
            case "damage":
                outcome.damage = told[0]
            case "command":
                running, seconds, end, problem = told
                if seconds is not None:
                    outcome.seconds.append(seconds)
                    outcome.accepted += end == "accepted"
                    if problem or seconds > limit:
                        problem = problem or f"took {seconds:.1f} s"
                        outcome.problems.append(f"{running}: {problem}")
            case _:
                outcome.problems.append(f"{running}: {told[0]}")
    # Lines written past the command's streams, by C libraries or other threads.
    if text := log.read_text(encoding="utf-8", errors="replace").strip():
        outcome.problems.append(f"written past the command: {text[-300:]}")
    if not outcome.problems:
        log.unlink()
    return outcome


def forked(
    work: Callable[[Callable[..., None]], None], limit: float, output: Path
) -> Iterator[tuple[Any, ...]]:
    """Runs `work` in a forked process and yields the arguments of its calls of `tell`.

    Kills the process if `limit` seconds pass without a call of `tell`. After a kill, a crash or an
    exception, yields ("failed", reason). The process's standard output and error go to a file.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _run_and_exit(work, writing, output)
    os.close(writing)
    with open(reading, encoding="utf-8") as lines:
        end = time.monotonic() + limit
        while True:
            if not select.select([lines], [], [], max(0.0, end - time.monotonic()))[0]:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                yield "failed", f"has not ended after {limit:g} s"
                return
            # The process writes whole lines, so this does not block for longer.
            line = lines.readline()
            if not line:
                break
            end = time.monotonic() + limit
            yield tuple(json.loads(line))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        yield "failed", f"its process ended with {code}"


def _run_and_exit(work: Callable[[Callable[..., None]], None], writing: int, output: Path) -> None:
    """Runs the work in the forked process, and never returns to the caller's code."""
    code = 1
    try:
        log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        # Open until the process ends.
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115

        def tell(*told: Any) -> None:
            os.write(writing, json.dumps(told).encode() + b"\n")

        work(tell)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
