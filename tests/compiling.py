"""Programs that call torch.compile, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path


def run_apart(program: str, kernels: Path, **variables: str) -> tuple[str, str]:
    """What a fresh process prints and logs, without kernels of an earlier one."""
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
