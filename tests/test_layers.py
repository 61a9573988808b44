"""Tests of the package's layers: a module imports only lower rows of LAYERS and its own folder."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "mtcon_ray"

# From bottom to top. A name is a module or a sub-package directly under mtcon_ray. Within a row a
# name may import the names to its left.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("errors", "version"),
    ("base",),
    ("spec",),
    ("data", "losses", "models"),
    ("methods",),
    ("evaluation", "training"),
    ("plan",),
    ("export",),
    ("testing",),
    # End of the core; the layers below this line may use Ray, MLflow and Optuna.
    ("records",),
    ("tracking", "display"),
    ("cluster", "sweep"),
    ("comparison",),
    ("api",),
    ("cli", "__main__"),
)
ORDER = [name for row in LAYERS for name in row]
LEVEL = {name: level for level, name in enumerate(ORDER)}
TOP_OF_CORE = LEVEL["testing"]
HOMES_OF = {"ray": ("cluster", "sweep"), "optuna": ("sweep",), "mlflow": ("tracking",)}
# These hold all uses of private interfaces of Ray, Tune and Train, and Optuna, with the reasons.
PRIVATE_HOMES = ("mtcon_ray.cluster.ray_private",)
WITHOUT_PRIVATE_USE = ("cluster", "sweep", "tracking")
# Private to Ray though no name of theirs has an underscore.
INTERNAL = ("ray.autoscaler", "ray.dashboard", "ray.experimental", "ray.tune.execution")
ENVIRONMENT = re.compile(r"\bos\.(?:environ|getenv|putenv).*|^ *from os import .*env.*", re.M)


def unit(module: str) -> str:
    """Returns `data` for `mtcon_ray.data.views`, and "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields line and name of all imports, also in functions and by import_module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=source, names=names, level=level):
                assert source is not None
                assert not level, "a relative import hides the layer"
                # In `from mtcon_ray import metrics` the imported name is a module.
                found = (f"{source}.{n.name}" if source == "mtcon_ray" else source for n in names)
                yield from ((node.lineno, name) for name in found)
            case ast.Call(
                func=ast.Name(id="import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def is_private(name: str) -> bool:
    """Returns True for `_storage`, False for `storage`, `_`, `__name__` and Python's `_exit`."""
    return len(name) > 1 and name.startswith("_") and not name.endswith("__") and name != "_exit"


def private_uses(source: str) -> Iterator[str]:
    """Yields uses of private interfaces of other packages, each with its line.

    A private attribute counts as a module's own if the module defines that name anywhere.
    """
    own = set(re.findall(r"(?:def |self\.|^)(_\w+)", source, re.M))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ImportFrom(module=str(module), names=names):
                full = [f"{module}.{alias.name}" for alias in names]
            case ast.Import(names=names):
                full = [alias.name for alias in names]
            case ast.Attribute(attr=name) if name not in own:
                full = [name]
            case ast.Call(
                func=ast.Name(id="getattr" | "setattr" | "hasattr"),
                args=[_, ast.Constant(value=str(name)), *_],
            ) if name not in own:
                full = [name]
            case _:
                continue
        for name in full:
            internal = any(f"{name}.".startswith(f"{prefix}.") for prefix in INTERNAL)
            if internal or any(map(is_private, name.split("."))):
                yield f"line {node.lineno} uses {name}"


def violations(source: str, module: str) -> list[str]:
    """Returns the violations of a module's imports, with their lines."""
    home = unit(module)
    if home and home not in LEVEL:
        return [f"{module} has no layer: give {home!r} a row in tests/test_layers.py"]
    level = LEVEL.get(home, -1)
    found = []
    for line, name in imports(ast.parse(source)):
        top = name.split(".")[0]
        if home not in HOMES_OF.get(top, (home,)):
            found.append(f"{module}:{line} imports {top}, which only {HOMES_OF[top]} may")
        if top != "mtcon_ray" or unit(name) in ("", home):
            continue
        if LEVEL.get(unit(name), len(ORDER)) >= level:
            found.append(f"{module}:{line} imports {name}, which is not below it")
    if level <= TOP_OF_CORE:
        found += [f"{module} reads the environment: {line}" for line in ENVIRONMENT.findall(source)]
    return found


def modules() -> list[tuple[str, Path]]:
    """Returns the dotted name and file of all modules of the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return [(".".join(f.relative_to(PACKAGE.parent).with_suffix("").parts), f) for f in files]


@pytest.mark.parametrize(("name", "path"), modules(), ids=[n for n, _ in modules()])
def test_module_imports_only_downwards(name: str, path: Path) -> None:
    module = name.removesuffix(".__init__")
    if module != "mtcon_ray":  # it offers names of others, imported on first use
        assert violations(path.read_text(encoding="utf-8"), module) == []


def test_every_row_exists() -> None:
    """Each name in LAYERS has a module; one without was renamed or removed."""
    units = {unit(name.removesuffix(".__init__")) for name, _ in modules()} - {""}
    assert sorted(set(LEVEL) - units) == []


@pytest.mark.parametrize(
    ("name", "path"), [(n, p) for n, p in modules() if unit(n) in WITHOUT_PRIVATE_USE]
)
def test_private_interfaces_of_libraries_have_a_module_of_their_own(name: str, path: Path) -> None:
    found = list(private_uses(path.read_text(encoding="utf-8")))
    assert bool(found) == (name in PRIVATE_HOMES), f"they belong into {PRIVATE_HOMES}: {found}"
