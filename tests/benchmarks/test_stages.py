"""The list of stages, and the imports of the benchmarks of the core."""

from pathlib import Path

from benchmarks import paced_trial, training
from benchmarks.__main__ import ONLY_WHEN_NAMED, STAGES
from mtcon_ray.sweep.trial import RESULT_SECONDS
from tests.processes import run_python
from tests.test_imports import BLOCKED_IMPORTS


def test_stages_are_the_files() -> None:
    folder = Path(training.__file__).parent
    commands = {"probe_agreement", "record_curves"}  # they need a folder as argument
    parts = {"machine", "paced_trial", "table", "timing", "waiting"}
    apart = {"__init__", "__main__", *parts, *commands}
    assert {*STAGES, *ONLY_WHEN_NAMED} == {file.stem for file in folder.glob("*.py")} - apart


def test_benchmarks_of_the_core_start_without_the_rest() -> None:
    core = ("views", "losses", "training", "profiles", "probes", "gpu.rows", "large_loss")
    modules = ("benchmarks.__main__", *(f"benchmarks.{name}" for name in core))
    run_python("-c", BLOCKED_IMPORTS, *modules)


def test_a_paced_trial_sends_results_as_often_as_a_trial_and_imports_no_torch() -> None:
    assert paced_trial.RESULT_SECONDS == RESULT_SECONDS
    run_python("-c", "import sys, benchmarks.paced_trial\nassert 'torch' not in sys.modules")
