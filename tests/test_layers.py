"""Tests of the package's layers: a module imports only lower rows of LAYERS and its own folder."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mtcon_ray"

# From bottom to top. A name is a module or a sub-package directly under mtcon_ray.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "observer"),
    ("lock", "metrics", "plain_yaml", "registry", "signals"),
    ("data",),
    ("losses",),
    ("models",),
    ("methods",),
    ("training", "evaluation"),
    ("search", "execution"),
    ("spec_errors",),
    ("spec",),
    ("places", "resumable", "capacity"),
    ("plan",),
    ("recorded",),
    ("local", "run"),
    ("calibrate", "evaluate"),
    ("export",),
    # End of the core; the layers below this line may use Ray, MLflow and Optuna.
    ("tracking",),
    ("results",),
    ("single",),
    ("report",),
    ("sweep",),
    ("comparison",),
    ("cli",),
    ("__main__",),
)
LEVEL = {name: level for level, row in enumerate(LAYERS) for name in row}
TOP_OF_CORE = LEVEL["export"]
HOME_OF = {"ray": "sweep", "optuna": "sweep", "mlflow": "tracking"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv"}


def unit(module: str) -> str:
    """Returns `data` for `mtcon_ray.data.views`, and "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yields line and absolute name of all imports, also in functions and by import_module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                if level:
                    parts = module.split(".")
                    base = parts[: len(parts) - level + is_package]
                    source = ".".join([*base, source] if source else base)
                assert source is not None
                # In `from mtcon_ray import metrics` the imported name is a module.
                yield from (
                    (node.lineno, f"{source}.{alias.name}" if source == "mtcon_ray" else source)
                    for alias in names
                )
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def reads_environment(tree: ast.AST) -> Iterator[int]:
    """Yields the lines that access environment variables."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name in ENVIRONMENT:
                yield node.lineno
            case ast.ImportFrom(module="os", names=names):
                if any(alias.name in ENVIRONMENT for alias in names):
                    yield node.lineno


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Returns the violations of a module's imports, with their lines."""
    tree = ast.parse(source)
    home = unit(module)
    if home and home not in LEVEL:
        return [f"{module} has no layer: give {home!r} a row in tests/test_layers.py"]
    level = LEVEL.get(home, -1)
    found = []
    for line, name in imports(tree, module, is_package):
        top = name.split(".")[0]
        if top in HOME_OF and HOME_OF[top] != home:
            found.append(f"{module}:{line} imports {top}, which only {HOME_OF[top]}/ may")
        if top != "mtcon_ray" or unit(name) in ("", "__version__", home):
            continue
        if LEVEL.get(unit(name), len(LAYERS)) >= level:
            found.append(f"{module}:{line} imports {name}, which is not below it")
    if level <= TOP_OF_CORE:
        found += [f"{module}:{line} reads the environment" for line in reads_environment(tree)]
    return found


def modules() -> list[tuple[str, Path]]:
    """Returns the dotted name and file of all modules of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [(".".join(f.relative_to(PACKAGE.parent).with_suffix("").parts), f) for f in files]


@pytest.mark.parametrize(("name", "path"), modules(), ids=[n for n, _ in modules()])
def test_module_imports_only_downwards(name: str, path: Path) -> None:
    package = name.endswith(".__init__")
    module = name.removesuffix(".__init__")
    found = violations(path.read_text(encoding="utf-8"), module, is_package=package)
    assert not found, "\n".join(found)


def test_every_row_exists() -> None:
    """Each name in LAYERS has a module; one without was renamed or removed."""
    units = {unit(name.removesuffix(".__init__")) for name, _ in modules()} - {""}
    assert sorted(set(LEVEL) - units) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("mtcon_ray.data.views", "from mtcon_ray.spec import RunSpec"),
        ("mtcon_ray.data.views", "def f():\n    import mtcon_ray.cli.main"),
        ("mtcon_ray.data.views", "from ..spec import RunSpec"),
        ("mtcon_ray.losses.weighting", "from mtcon_ray import plan"),
        ("mtcon_ray.models.network", "from mtcon_ray.methods import METHODS"),
        ("mtcon_ray.spec", "import ray.tune"),
        ("mtcon_ray.report.page", "from optuna import Study"),
        ("mtcon_ray.sweep.driver", "import mlflow"),
        ("mtcon_ray.run", "import os\nos.environ['X']"),
        ("mtcon_ray.run", "from os import getenv"),
        ("mtcon_ray.plan", "from importlib import import_module\nimport_module('ray')"),
        ("mtcon_ray.helper", "x = 1"),
        ("mtcon_ray", "from mtcon_ray.errors import MtconError"),
    ],
)
def test_finds_a_violation(module: str, source: str) -> None:
    assert len(violations(source, module)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("mtcon_ray.data.views", "from mtcon_ray.data.batch import Batch"),
        ("mtcon_ray.data.views", "from . import batch"),
        ("mtcon_ray.methods.mtcon", "from mtcon_ray import metrics"),
        ("mtcon_ray.sweep.driver", "import ray, optuna, os\nos.environ['X']"),
        ("mtcon_ray.cli.main", "from mtcon_ray import __version__"),
    ],
)
def test_accepts_what_the_layers_allow(module: str, source: str) -> None:
    assert violations(source, module) == []
