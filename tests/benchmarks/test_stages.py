"""The list of stages, and the imports of the benchmarks of the core."""

from tests.processes import run_python
from tests.test_imports import BLOCKED_IMPORTS


def test_benchmarks_of_the_core_start_without_the_rest() -> None:
    core = ("views", "losses", "training", "profiles", "probes", "gpu.rows", "large_loss")
    modules = ("benchmarks.__main__", *(f"benchmarks.{name}" for name in core))
    run_python("-c", BLOCKED_IMPORTS, "ray mlflow optuna", *modules)
