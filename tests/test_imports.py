"""Tests that the core imports neither Ray, MLflow nor Optuna, and that slow imports are lazy."""

import json
from pathlib import Path

import pytest

from tests.processes import run_python

REPOSITORY = Path(__file__).parent.parent
OUTER = {"tracking", "cluster", "sweep", "comparison", "cli", "__main__.py"}
# The core, and what of the rest is pure.
PURE = [
    path
    for path in sorted((REPOSITORY / "mtcon_ray").rglob("*.py"))
    if path.relative_to(REPOSITORY).parts[1] not in OUTER
]

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


def module_name(path: Path) -> str:
    """Returns the module name of a file: `mtcon_ray.data` for mtcon_ray/data/__init__.py."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("blocked", "modules"),
    [
        ('{"ray", "mlflow", "optuna"}', [*map(module_name, PURE), "mtcon_ray.cli.main"]),
        ('{"ray"}', ["mtcon_ray.sweep.driver", "mtcon_ray.sweep.here"]),
        # They take twice as long as all others, and `mtcon-ray list` needs none of them.
        ('{"pandas", "torch._dynamo", "torchvision"}', [*map(module_name, PURE)]),
    ],
    ids=["core", "driver", "slow"],
)
def test_modules_import_without_these_packages(blocked: str, modules: list[str]) -> None:
    code = BLOCKED_IMPORTS.replace('{"ray", "mlflow", "optuna"}', blocked)
    run_python("-c", code, *modules)


def test_importing_the_package_loads_its_version_only() -> None:
    code = """
import json, sys
before = set(sys.modules)
import mtcon_ray
new = sorted(set(sys.modules) - before)
print(json.dumps([name for name in new if name.partition(".")[0] not in sys.stdlib_module_names]))
"""
    assert json.loads(run_python("-c", code).stdout) == ["mtcon_ray", "mtcon_ray.version"]
