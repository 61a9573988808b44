"""Runs the commands of a case in this process and judges the end of each command."""

import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import ray
from click.testing import CliRunner, Result

from benchmarks.fuzz.cases import Command
from mtcon_ray.cli.main import program

# Largest length of a line in an error message, which has a line per problem.
MAX_LINE = 1000
TRACE = re.compile(r"Traceback|^error: unexpected.*|\.py:\d+: \w*Warning", re.MULTILINE)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
# A failed command may leave the cache, traces, and files of a repeatable export.
MAY_BE_LEFT = {"store", "log", "boards", "boards.journal", "exported"}


def enter(folder: Path) -> None:
    """Changes to the shop of a case, with its own home and folder for temporary files."""
    (folder / "tmp").mkdir(exist_ok=True)
    os.chdir(folder / "shop")
    os.environ.update(HOME=str(folder / "home"), TMPDIR=str(folder / "tmp"))
    tempfile.tempdir = str(folder / "tmp")
    for name in ("MTCON_RAY_ROOT", "MLFLOW_TRACKING_URI", "RAY_ADDRESS", "CUDA_VISIBLE_DEVICES"):
        os.environ.pop(name, None)

    def refuse(*arguments: Any, **options: Any) -> NoReturn:
        raise AssertionError("Ray must not be started by a spec that `validate` refuses")

    ray.init = refuse


def run_commands(
    folder: Path, commands: tuple[Command, ...], marker: Path
) -> Iterator[tuple[str, float | None, str, str]]:
    """Runs the commands in turn in the folder of a case.

    Yields each command's line with None before it runs. Afterwards yields the line, the seconds,
    "accepted" or "refused", and the problems, "" without problems.
    """
    refused = False
    for command in commands:
        if command[0] == "sweep" and not refused:
            continue  # the command would start Ray
        line = f"mtcon-ray {' '.join(command)}"
        yield line, None, "", ""
        before, begin = visible(folder), time.perf_counter()
        with warnings.catch_warnings():
            result = CliRunner().invoke(program, list(command))
        seconds = time.perf_counter() - begin
        problems = [*judge(command, result)]
        left = visible(folder) - before
        if result.exit_code and left:
            problems.append(f"left {', '.join(sorted(left))}")
        if marker.exists():
            problems.append("ran code from a file")
        refused = result.exit_code != 0
        yield line, seconds, "refused" if refused else "accepted", "; ".join(problems)


def visible(folder: Path) -> set[str]:
    """Returns the existing paths, except for files that a failed command may leave."""
    inner = ("", "shop", "root", "root/sweeps", "tmp")
    entries = (
        entry for name in inner if (folder / name).is_dir() for entry in (folder / name).iterdir()
    )
    return {str(e.relative_to(folder)) for e in entries if e.name not in MAY_BE_LEFT}


def judge(command: Command, result: Result) -> Iterator[str]:
    """Yields the problems in a command's output and exit code."""
    output = f"{result.stderr}\n{result.stdout}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        yield f"raised {result.exception!r}"[:300]
    if found := TRACE.search(output):
        yield found[0]
    if found := CONTROL.search(output):
        yield f"printed the control character {found[0]!r}"
    is_audit = command[0] == "audit"
    if result.exit_code == 0 or (is_audit and result.exit_code == 1 and not result.stderr):
        yield from _wrong_output(command, result.stdout)
        return
    if result.exit_code not in (1, 2):
        yield f"ended with the exit code {result.exit_code}"
    errors = re.findall(r"^(?:error|Error): .*", result.stderr, re.MULTILINE)
    if len(errors) != 1:
        yield f"printed {len(errors)} lines that begin with error:"
    longest = max(result.stderr.splitlines(), key=len, default="")
    if len(longest) > MAX_LINE:
        yield f"printed a line of {len(longest):,} characters: {longest[:200]}"


def _wrong_output(command: Command, output: str) -> Iterator[str]:
    """Yields the problems in a successful command's output."""
    if not output.strip():
        yield "printed nothing"
    elif "--json" in command:
        try:
            json.loads(output, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            yield f"printed no JSON: {error}"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
