"""Plugins: classes from outside of this package, of the kinds in `GROUPS`.

Importing a plugin registers its classes, as importing this package's own folders does. An installed
package names its modules by entry points, and is trusted as any installed package is. A spec names
modules of its user's own folder. Importing them runs code of the spec's author, so it needs
consent.
"""

import hashlib
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from mtcon_ray.errors import SpecError

_WHOLE = "methods", "encoders", "data", "schedulers"
_PARTS = "optimizers", "schedules", "augmentations", "metrics"
GROUPS = tuple(f"mtcon_ray.{kind}" for kind in (*_WHOLE, *_PARTS))
MODULE = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"

_folders: list[str] = []  # searched for the modules of specs in addition to installed packages
_imported: list[str] = []
_consent = False


def allow(folders: Iterable[str] = ()) -> None:
    """Lets specs import the modules named in them, including modules in `folders`."""
    global _consent
    _consent = True
    for folder in folders:
        _look_in(folder)


def allowed_folders() -> list[str] | None:
    """Returns the folders searched for modules, or None if specs may not import modules.

    `allow` gives another process the same consent.
    """
    return list(_folders) if _consent else None


def import_installed() -> None:
    """Imports the plugins of all installed packages.

    Raises SpecError if a plugin cannot be imported.
    """
    for plugin in installed_plugins():
        what = f"cannot import the installed plugin {plugin.value!r}"
        _load(plugin.load, what, "repair or uninstall its package")


def import_named(names: object, where: str, folder: Path | None) -> bool:
    """Imports the modules named in a spec's field `plugins`. Returns True if a module is new.

    They are searched among the installed packages, then in `folder`, by default the working
    directory. Anything but a list of module names is rejected later, when the spec is validated.
    Raises SpecError without consent, and if a module cannot be imported. `where` begins its
    message.
    """
    if not isinstance(names, list | tuple) or not names:
        return False
    modules = [str(name) for name in names if re.fullmatch(MODULE, str(name))]
    if not _consent:
        raise SpecError(
            f"{where}: plugins need your consent, because their code runs on this machine: "
            f"{', '.join(modules)}; if you trust them, give --allow-plugins, set "
            "MTCON_RAY_ALLOW_PLUGINS=1, or call mtcon_ray.allow_plugins() in Python"
        )
    _look_in(str((folder or Path.cwd()).resolve()))
    new = [name for name in modules if name not in _imported]
    for name in new:
        way_out = f"looked for it among the installed packages and in {', '.join(_folders)}"
        _load(partial(import_module, name), f"{where}: cannot import the plugin {name!r}", way_out)
        _imported.append(name)
    return bool(new)


def versions() -> dict[str, str]:
    """Returns what identifies each plugin in use: a package's version, or a file's digest."""
    found = {p.dist.name: p.dist.version for p in installed_plugins() if p.dist is not None}
    for name in _imported:
        if file := sys.modules[name].__file__:
            found[name] = f"sha256:{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]}"
    return found


def check_shape(what: str, value: Any, expected: tuple[int, ...], way_out: str) -> None:
    """Raises SpecError unless a plugin's result is a tensor of this shape.

    `what` begins the message. It names the plugin and the result.
    """
    shape = tuple(value.shape) if hasattr(value, "requires_grad") else None
    if shape != expected:
        got = type(value).__name__ if shape is None else list(shape)
        raise SpecError(f"{what} must be a tensor of shape {list(expected)}, got {got}; {way_out}")


def installed_plugins() -> list[Any]:
    """Returns the entry points of all installed packages in GROUPS."""
    from importlib.metadata import entry_points  # 25 ms, which most commands need not spend

    found = entry_points()  # once, because each call reads a file of each installed package
    return [plugin for group in GROUPS for plugin in found.select(group=group)]


def _load(load: Callable[[], object], what: str, way_out: str) -> None:
    try:
        load()
    # Any exception of a plugin is caught, because its kind is unknown here. SystemExit is not a
    # subclass of Exception. Uncaught, the command would exit with success.
    except (Exception, SystemExit) as error:
        raise SpecError(f"{what}: {type(error).__name__}: {error}; {way_out}") from error


def _look_in(folder: str) -> None:
    if folder not in _folders:
        _folders.append(folder)
    if folder not in sys.path:
        # At the end: a file next to a spec must not replace an installed package.
        sys.path.append(folder)
