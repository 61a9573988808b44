"""Environment of a job: files of the working directory, variables, versions and packages."""

import json
import os
from importlib.machinery import all_suffixes
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

from mtcon_ray.display.presentation import resume_line
from mtcon_ray.errors import UserError
from mtcon_ray.tracking.login import TRUST_VARIABLE, masked
from mtcon_ray.version import __version__

# Ray's default of 3 s is too short to write a checkpoint.
STOP_SECONDS = 60
# Addresses of the tracking server and of object stores, never their keys.
PLACES = (
    "MLFLOW_TRACKING_URI", TRUST_VARIABLE, "MLFLOW_S3_ENDPOINT_URL", "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION",
)  # fmt: skip
# Patterns of .gitignore for modules, and for the folders in which Python looks for entry points.
CODE = [f"*{end}" for end in (*all_suffixes(), ".dist-info", ".egg-info")]
VERSIONS_VARIABLE = "MTCON_RAY_VERSIONS"
# A node copies gigabytes of packages, and may download more.
SETUP_SECONDS = 3600
# Packages that decide results or how processes communicate. constraints.txt pins the rest.
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pydantic", "optuna", "mlflow")


def in_job() -> bool:
    """Returns True in a job of `mtcon-ray submit`: its user did not type this process's command."""
    return VERSIONS_VARIABLE in os.environ


def way_on(name: str) -> str:
    """Returns the command to continue a sweep of this name, in words."""
    return resume_line(name, submitted=in_job())


def job_variables(environ: dict[str, str], command: list[str]) -> dict[str, str]:
    """Returns the job's environment variables: addresses in PLACES and the required versions.

    No other variable is passed on: keys and passwords are set on the cluster. Raises UserError if a
    variable or the command holds a password, because the dashboard shows both.
    """
    found = {name: environ[name] for name in PLACES if environ.get(name)}
    for name, text in [*found.items(), *(("--set", word) for word in command)]:
        if masked(text) != text:
            raise UserError(
                f"{name} holds a password, {masked(text)!r}, and the dashboard shows a job's "
                "environment and command; set it where the cluster's head is started"
            )
    return {**found, VERSIONS_VARIABLE: json.dumps(versions())}


def minor(version: str) -> str:
    """Returns a version without its patch level: 2.60 of 2.60.1. Such versions work together."""
    return ".".join(version.split(".")[:2])


def versions() -> dict[str, str]:
    """Returns the installed versions of Python, Ray, this package and PACKAGES.

    The patch levels of Python and Ray are left out, because they belong to the cluster. Build tags
    such as "+cu128" are left out too: a machine without a GPU may submit.
    """
    return {
        "python": minor(python_version()),
        "ray": minor(version("ray")),
        "mtcon-ray": __version__,
        **{name: version(name).partition("+")[0] for name in PACKAGES},
    }


def job_environment(
    folder: Path, variables: dict[str, str], requirements: Path | None, *, has_code: bool
) -> dict[str, Any]:
    """Returns the job's Ray runtime environment. pip installs `requirements` on each node.

    Raises UserError if the file of requirements holds a password, because the dashboard shows it.
    Without `has_code` no importable file of the folder is uploaded. Ray puts a job's working
    directory on the import path of its processes, so a `numpy.py` in the folder of a stranger's
    spec would run on the cluster.
    """
    environment: dict[str, Any] = {
        "working_dir": str(folder),
        "excludes": [] if has_code else CODE,
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS), **variables},
    }
    if requirements is not None:
        if masked(text := requirements.read_text()) != text:
            raise UserError(
                f"{requirements} holds a password, and the dashboard shows its lines; set the "
                "password in pip's settings on the nodes"
            )
        environment["pip"] = str(requirements)
        environment["config"] = {"setup_timeout_seconds": SETUP_SECONDS}
    return environment


def check_versions(asked: str | None) -> None:
    """Raises UserError if the versions here differ from the submitting environment.

    `asked` is the JSON text of `job_variables`, None for a process not started by a job.
    """
    wanted, here = json.loads(asked) if asked else {}, versions()
    if wrong := [f"{n} {here.get(n)} (you: {v})" for n, v in wanted.items() if here.get(n) != v]:
        raise UserError(
            f"the cluster's versions differ from yours: it has {', '.join(wrong)}; install one "
            "constraints.txt and one Python on both"
        )
