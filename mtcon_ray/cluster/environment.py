"""Environment variables of this process, and its working directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mtcon_ray.base.paths import choose_root
from mtcon_ray.errors import UserError

if TYPE_CHECKING:
    from mtcon_ray.spec.resources import StorageSpec

ROOT_VARIABLE = "MTCON_RAY_ROOT"


@contextmanager
def restored_environment() -> Iterator[None]:
    """Restores the former values of environment variables after changes by libraries."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def cluster_address() -> str | None:
    """Returns the address of this process's cluster (RAY_ADDRESS), None for a local Ray."""
    given = os.environ.get("RAY_ADDRESS")
    return None if given in ("", "local") else given


def working_directory() -> Path:
    """Returns this process's working directory. Raises UserError if it was removed."""
    try:
        return Path.cwd()
    except OSError as error:
        raise UserError(
            "the working directory was removed or moved after this process entered it "
            f"({error.strerror}); change to another directory"
        ) from None


def root_of(given: str | Path | None, storage: "StorageSpec | None" = None) -> Path:
    """Returns the root: the option's, else the spec's, else the environment's, else the default."""
    of_spec, local = (storage.root, storage.local) if storage else (None, None)
    return choose_root(str(given or of_spec or os.environ.get(ROOT_VARIABLE, "")), local)
