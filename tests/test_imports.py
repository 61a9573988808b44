"""Tests that the core imports neither Ray, MLflow nor Optuna, and that slow imports are lazy."""

import pytest

from tests.processes import run_python
from tests.test_layers import modules, unit

OUTER = {"tracking", "cluster", "sweep", "comparison", "cli", "__main__"}
# The core, and what of the rest is pure.
PURE = [name.removesuffix(".__init__") for name, _ in modules() if unit(name) not in OUTER]

# Its first argument names the blocked packages.
BLOCKED_IMPORTS = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name in sys.argv[1].split():
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
for module in sys.argv[2:]:
    found = importlib.import_module(module)
    assert all(hasattr(found, name) for name in getattr(found, "__all__", ())), module
"""


@pytest.mark.slow
def test_the_core_imports_no_service() -> None:
    """Nor does the core import packages that take twice as long as all others.

    `mtcon-ray list` needs none of them.
    """
    blocked = "ray mlflow optuna pandas torch._dynamo torchvision"
    run_python("-c", BLOCKED_IMPORTS, blocked, *PURE, "mtcon_ray.cli.main")


@pytest.mark.slow
def test_a_training_without_ray_starts_without_ray_and_without_matplotlib() -> None:
    """This includes the driver. The report imports matplotlib later, when the trials have ended."""
    run_python("-c", BLOCKED_IMPORTS, "ray matplotlib", "mtcon_ray.sweep.run")
