"""The fuzzing reports an unclear error and files that a refusal leaves."""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.soak
def test_damaged_files_are_refused_or_read() -> None:
    """The limit allows for tests that run at the same time."""
    command = (sys.executable, "-m", "benchmarks", "fuzz", "--rounds", "40", "--limit", "120")
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
