"""Tests that the core imports neither Ray, MLflow nor Optuna, and that slow imports are lazy."""

import pytest

from tests.processes import run_python
from tests.test_layers import modules, unit

OUTER = {"tracking", "cluster", "sweep", "comparison", "cli", "__main__"}
# The core, and what of the rest is pure.
PURE = [name.removesuffix(".__init__") for name, _ in modules() if unit(name) not in OUTER]

BLOCKED_IMPORTS = """
import importlib, sys

class Blocker:
    blocked = {"ray", "mlflow", "optuna"}

    def find_spec(self, name, path=None, target=None):
        if name in self.blocked:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
for module in sys.argv[1:]:
    found = importlib.import_module(module)
    assert all(hasattr(found, name) for name in getattr(found, "__all__", ())), module
"""
DRIVER = """
Blocker.blocked = {"ray"}
for module in ("mtcon_ray.sweep.driver", "mtcon_ray.sweep.here"):
    importlib.import_module(module)
"""


@pytest.mark.slow
def test_the_core_imports_no_service_and_the_driver_no_ray() -> None:
    """Nor does the core import packages that take twice as long as all others.

    `mtcon-ray list` needs none of them.
    """
    more = '"optuna", "pandas", "torch._dynamo", "torchvision"'
    code = BLOCKED_IMPORTS.replace('"optuna"', more) + DRIVER
    run_python("-c", code, *PURE, "mtcon_ray.cli.main")


@pytest.mark.slow
def test_a_training_without_ray_starts_without_ray_and_without_matplotlib() -> None:
    """The report imports matplotlib later, when the trials have ended."""
    run_python(
        "-c", BLOCKED_IMPORTS.replace('"mlflow", "optuna"', '"matplotlib"'), "mtcon_ray.sweep.run"
    )
