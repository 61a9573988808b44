"""The fuzzing reports an unclear error and files that a refusal leaves."""

import pytest

from tests.processes import run_python


@pytest.mark.soak
def test_damaged_files_are_refused_or_read() -> None:
    """The limit allows for tests that run at the same time."""
    run_python("-m", "benchmarks", "fuzz", "--rounds", "40", "--limit", "120")
