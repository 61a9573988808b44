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
    def find_spec(self, name, path=None, target=None):
        if name in {"ray", "mlflow", "optuna"}:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocker())
for module in sys.argv[1:]:
    importlib.import_module(module)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocked", "names"),
    [
        ('{"ray", "mlflow", "optuna"}', [*PURE, "mtcon_ray.cli.main"]),
        ('{"ray"}', ["mtcon_ray.sweep.driver", "mtcon_ray.sweep.here"]),
        # They take twice as long as all others, and `mtcon-ray list` needs none of them.
        ('{"pandas", "torch._dynamo", "torchvision"}', PURE),
    ],
    ids=["core", "driver", "slow"],
)
def test_modules_import_without_these_packages(blocked: str, names: list[str]) -> None:
    code = BLOCKED_IMPORTS.replace('{"ray", "mlflow", "optuna"}', blocked)
    run_python("-c", code, *names)
