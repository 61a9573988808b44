"""What a job takes along: the working directory's files, this environment's versions."""

import json
import logging
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import NamedTuple

from ray._private.ray_constants import get_runtime_env_default_excludes
from ray._private.runtime_env.packaging import (
    GCS_STORAGE_MAX_SIZE,
    _dir_travel,
    _get_excludes,
)

from mtcon_ray import __version__
from mtcon_ray.errors import ResourceError, UserError
from mtcon_ray.tracking.server import masked

NUM_LARGEST = 5
# Where runs are tracked and where an object store is, never its keys.
PLACES = (
    "MLFLOW_TRACKING_URI",
    "MLFLOW_S3_ENDPOINT_URL",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
VERSIONS_VARIABLE = "MTCON_RAY_VERSIONS"
# What decides results, or how processes understand each other; constraints.txt pins the rest.
PACKAGES = ("ray", "torch", "torchvision", "numpy", "pandas", "pydantic", "optuna", "mlflow")

log = logging.getLogger(__name__)


class Upload(NamedTuple):
    """What Ray would send to the cluster of a working directory, before it is packed."""

    num_bytes: int
    num_files: int
    largest: tuple[tuple[str, int], ...]


def measure_upload(folder: Path) -> Upload:
    """The folder's files less what .gitignore, .rayignore and Ray itself leave out."""
    sizes: dict[str, int] = {}

    def see(path: Path) -> None:
        if path.is_file():
            sizes[str(path.relative_to(folder))] = path.stat().st_size

    excludes = [_get_excludes(folder, get_runtime_env_default_excludes())]
    _dir_travel(folder, excludes, see, include_gitignore=True, logger=log)
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:NUM_LARGEST]
    return Upload(sum(sizes.values()), len(sizes), tuple(largest))


def check_upload(folder: Path, limit: int = GCS_STORAGE_MAX_SIZE) -> Upload:
    """Raises ResourceError naming the largest files where Ray would not take them."""
    upload = measure_upload(folder)
    if upload.num_bytes > limit:
        shown = "\n  ".join(f"{size / 1e6:8.1f} MB  {path}" for path, size in upload.largest)
        raise ResourceError(
            f"what is uploaded must be at most {limit / 1e6:.3g} MB, got "
            f"{upload.num_bytes / 1e6:.3g} MB in {upload.num_files:,} files of {folder}:\n"
            f"  {shown}\n"
            "name what the job does not need in .rayignore, and data by absolute paths"
        )
    return upload


def job_variables(environ: dict[str, str], command: list[str]) -> dict[str, str]:
    """What a job is told: where runs are tracked and data are, and the versions it must find.

    Nothing else of the environment goes along: keys and passwords are set on the cluster.
    Raises UserError where a variable or the command holds a password, for the dashboard shows
    both.
    """
    found = {name: environ[name] for name in PLACES if environ.get(name)}
    for name, text in [*found.items(), *(("--set", word) for word in command)]:
        if masked(text) != text:
            raise UserError(
                f"{name} must hold no password to be passed to a job, whose environment and "
                f"command the dashboard shows, got {masked(text)!r}; set it where the cluster's "
                "head is started"
            )
    return {**found, VERSIONS_VARIABLE: json.dumps(versions())}


def versions() -> dict[str, str]:
    """Python's (without its patch level), ours, and those of PACKAGES, as installed here."""
    python = python_version().rpartition(".")[0]
    return {
        "python": python,
        "mtcon-ray": __version__,
        **{name: version(name) for name in PACKAGES},
    }


def check_versions(asked: str | None) -> None:
    """Raises UserError where this environment is not the one of whoever submitted the job.

    `asked` is what `job_variables` wrote; None: nobody asks.
    """
    wanted = json.loads(asked) if asked else {}
    here = versions()
    wrong = [
        f"{name} {here.get(name)}, not {v}" for name, v in wanted.items() if here.get(name) != v
    ]
    if wrong:
        raise UserError(
            f"the cluster must have the versions of whoever submits to it, got {'; '.join(wrong)}; "
            "install one constraints.txt on both"
        )
