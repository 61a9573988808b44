"""Python processes with this package, for tests that run one until it ends."""

import os
import subprocess
import sys
from pathlib import Path

from tests.waiting import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[1]


def run_python(
    *words: object,
    cwd: Path = REPOSITORY,
    code: int = 0,
    seconds: float = PATIENCE_SECONDS,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Returns what a process wrote that ends with `code`, with `variables` in its environment."""
    done = subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(REPOSITORY), **variables},
        capture_output=True, text=True, timeout=seconds,
    )  # fmt: skip
    assert done.returncode == code, done.stdout[-3000:] + done.stderr[-3000:]
    return done
