"""Processes for tests: Python with this package until its end, and others in the background."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import indent
from typing import Any

from tests.waiting import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[1]
# Runs command lines in one process, because Python needs seconds for the imports. After each it
# prints the line, its exit code and the modules that are loaded by then.
IN_TURN = """
import sys
from mtcon_ray.cli.main import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as end:
        print("ended", line, end.code, *sys.modules, sep="|")
"""


def run(
    command: Sequence[str | Path], *, code: int = 0, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Returns what a process wrote that ends with `code`."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done


def run_python(
    *words: object, cwd: Path = REPOSITORY, code: int = 0, seconds: float = PATIENCE_SECONDS,
    **variables: str,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Returns what a process wrote that ends with `code`, with `variables` in its environment."""
    command = [sys.executable, *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), **variables}
    return run(command, code=code, cwd=cwd, env=environment, timeout=seconds)


def run_program(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs code as the main program of a file in a folder, which Ray's processes can import."""
    (folder / "program.py").write_text(f"if __name__ == '__main__':\n{indent(code, '    ')}")
    return run_python("program.py", cwd=folder, HOME=str(folder), MPLBACKEND="agg")


def begin(command: Sequence[str | Path], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Starts a process in a group of its own. Its output is added to the file `log`."""
    with log.open("ab") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True, **options)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and those that it has started, also if it has ended by itself."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(PATIENCE_SECONDS)
