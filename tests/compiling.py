"""Helper that runs a program with torch.compile in a separate process."""

import os
import subprocess
import sys
from pathlib import Path


def run_apart(program: str, kernels: Path, **variables: str) -> tuple[str, str]:
    """Returns stdout and stderr of a new Python process that caches its kernels in `kernels`."""
    variables["TORCHINDUCTOR_CACHE_DIR"] = str(kernels)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr
