"""Package of a job: files of the working directory, variables, versions and requirements."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import all_suffixes
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

import mtcon_ray
from mtcon_ray.cluster.jobs import minor
from mtcon_ray.cluster.ray_private import MAX_PACKAGE_BYTES, visit_working_directory
from mtcon_ray.errors import ResourceError, UserError
from mtcon_ray.presentation import resume_line
from mtcon_ray.tracking.login import TRUST_VARIABLE, masked
from mtcon_ray.version import __version__

NUM_LARGEST = 5
# Ray's zip stores files uncompressed. Each entry has a local and a central header, both with its
# path. The record at the end is longer above 65,535 entries; this is the longer one.
ZIP_ENTRY_BYTES, ZIP_END_BYTES = 30 + 46, 22 + 76
# Addresses of the tracking server and of object stores, never their keys.
PLACES = (
    "MLFLOW_TRACKING_URI",
    TRUST_VARIABLE,
    "MLFLOW_S3_ENDPOINT_URL",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)
# Ends of the names of modules, and of the folders in which Python looks for entry points.
CODE = (*all_suffixes(), ".dist-info", ".egg-info")
VERSIONS_VARIABLE = "MTCON_RAY_VERSIONS"
# A node copies gigabytes of packages, and may download more.
SETUP_SECONDS = 3600
# Packages that decide results or how processes communicate; constraints.txt pins the rest.
PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pydantic", "optuna", "mlflow")


def in_job() -> bool:
    """Returns True in a job of `mtcon-ray submit`: its user did not type this process's command."""
    return VERSIONS_VARIABLE in os.environ


def way_on(name: str) -> str:
    """Returns the command that continues a sweep of this name, in words."""
    if in_job():
        # The cluster lists no job of this name, or `submit` would have chosen another one. So
        # `mtcon-ray resume` would not find it.
        return f"repeat `mtcon-ray submit` with --name {name}"
    return resume_line(name, submitted=False)


class Upload(NamedTuple):
    """The files of a working directory that Ray would upload."""

    num_bytes: int
    """Size of Ray's package of these files, without the headers of empty directories."""
    num_files: int
    largest: tuple[tuple[str, int], ...]
    """Files, and directories directly below the working directory, these with a final slash."""


def measure_upload(folder: Path) -> Upload:
    """Returns the directory's files without those that .gitignore, .rayignore or Ray exclude."""
    files: Counter[str] = Counter()
    folders: Counter[str] = Counter()

    def see(path: Path) -> None:
        if path.is_file():
            name, size = str(path.relative_to(folder)), path.stat().st_size
            files[name] = size
            first, slash, _ = name.partition("/")
            folders[first + slash] += size if slash else 0

    visit_working_directory(folder, see)
    headers = sum(ZIP_ENTRY_BYTES + 2 * len(os.fsencode(name)) for name in files)
    largest = tuple((files + folders).most_common(NUM_LARGEST))
    return Upload(files.total() + headers + ZIP_END_BYTES, len(files), largest)


def check_upload(folder: Path, limit: int = MAX_PACKAGE_BYTES) -> Upload:
    """Returns the upload. Raises ResourceError naming the largest files if it is too large."""
    upload = measure_upload(folder)
    if upload.num_bytes > limit:
        shown = "\n  ".join(f"{size / 1e6:8.1f} MB  {path}" for path, size in upload.largest)
        raise ResourceError(
            f"the upload must be at most {limit / 1e6:.4g} MB, for Ray's dashboard takes no more, "
            f"got {upload.num_bytes / 1e6:.4g} MB in {upload.num_files:,} files of "
            f"{folder}:\n"
            f"  {shown}\n"
            "name what the job does not need in .rayignore, and data by absolute paths"
        )
    return upload


@contextmanager
def without_code(folder: Path) -> Iterator[Path]:
    """Yields a temporary copy of the files that Ray would upload, less all that can be imported.

    Ray puts a job's working directory on the import path of its processes, so a `numpy.py` beside
    a stranger's spec would run on the cluster.
    """
    with TemporaryDirectory(prefix="mtcon-ray-") as name:

        def copy(path: Path) -> None:
            inside = path.relative_to(folder)
            if path.is_file() and not any(part.endswith(CODE) for part in inside.parts):
                target = Path(name) / inside
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)

        visit_working_directory(folder, copy)
        yield Path(name)


def job_variables(environ: dict[str, str], command: list[str]) -> dict[str, str]:
    """Returns the job's environment variables: addresses in PLACES and the versions it must find.

    No other variable is passed on: keys and passwords are set on the cluster. Raises UserError if
    one of the variables or the command holds a password, because the dashboard shows both.
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
    """Returns the installed versions of Python, Ray, this package and PACKAGES.

    Left out are the patch levels of Python and Ray, which are the cluster's, and build tags such as
    "+cu128", so that a machine without a GPU may submit.
    """
    return {
        "python": minor(python_version()),
        "ray": minor(version("ray")),
        "mtcon-ray": __version__,
        **{name: version(name).partition("+")[0] for name in PACKAGES},
    }


def read_requirements(path: Path) -> list[str]:
    """Returns the packages of a requirements file, without its comments.

    Raises UserError for a line that does not name one package, or that holds a password.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--requirements must be a text file, got {path}: {error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        text = re.sub(r"(^|\s)#.*", "", line).strip()
        if not text:
            continue
        where = f"{path}, line {number}, must name a package as pip does, got {masked(text)!r}"
        try:
            package = Requirement(text)
        except InvalidRequirement as error:
            reason = masked(str(error).partition("\n")[0])
            raise UserError(
                f"{where} ({reason}); an index or another option belongs into pip's settings on "
                "the nodes"
            ) from None
        if package.url and masked(package.url) != package.url:
            raise UserError(
                f"{where}: the dashboard shows what a job installs; give pip on the nodes the "
                "password"
            )
        found.append(str(package))
    return found


def job_environment(requirements: list[str]) -> dict[str, Any]:
    """Returns a Ray runtime environment with this environment's versions and `requirements`.

    This package's code is uploaded. pip installs its dependencies in the versions installed here.
    Python and Ray are the cluster's. Raises UserError if this package is not installed.
    """
    try:
        named = [Requirement(text) for text in requires("mtcon-ray") or []]
    except PackageNotFoundError:
        raise UserError(
            "--install must find mtcon-ray installed, to know its packages, got a bare checkout; "
            "pip install it"
        ) from None
    names = [each.name for each in named if not each.marker and each.name != "ray"]
    pinned = [f"{name}=={version(name).partition('+')[0]}" for name in names]
    return {
        "py_modules": [str(Path(mtcon_ray.__file__).parent)],
        # Ray leaves them out of a working directory only. With them the package would be another
        # one, and be uploaded again, whenever a further module was imported here.
        "excludes": ["__pycache__"],
        "pip": {
            "packages": [*pinned, *requirements],
            # Ray's default options include --no-cache-dir: every job would download again.
            "pip_install_options": ["--disable-pip-version-check"],
        },
        "config": {"setup_timeout_seconds": SETUP_SECONDS},
    }


def check_versions(asked: str | None) -> None:
    """Raises UserError if the versions here differ from those of the submitting environment.

    `asked` is the JSON text of `job_variables`, None for a process that no job started.
    """
    wanted = json.loads(asked) if asked else {}
    here = versions()
    wrong = [
        f"{name} {here.get(name)}, not {v}" for name, v in wanted.items() if here.get(name) != v
    ]
    if wrong:
        way_out = (
            f"a job cannot bring its own Python: submit from {here['python']}"
            if wanted["python"] != here["python"]
            else "install one constraints.txt on both, or submit with --install"
        )
        raise UserError(
            f"the cluster must have the versions of whoever submits to it, got {'; '.join(wrong)}; "
            f"{way_out}"
        )
