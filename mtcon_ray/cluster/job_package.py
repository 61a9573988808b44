"""What a job takes along: the working directory's files, this environment's versions."""

import json
import os
import re
from collections import Counter
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from platform import python_version
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement

import mtcon_ray
from mtcon_ray import __version__
from mtcon_ray.cluster.ray_private import MAX_PACKAGE_BYTES, visit_working_directory
from mtcon_ray.errors import ResourceError, UserError
from mtcon_ray.tracking.server import masked

NUM_LARGEST = 5
# Ray's zip stores files uncompressed. Each entry has a local and a central header, both with its
# path; at the end stands a record, longer above 65,535 entries.
ZIP_ENTRY_BYTES, ZIP_END_BYTES = 30 + 46, 22 + 76
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
# A node copies gigabytes, and may then download some.
SETUP_SECONDS = 3600
# What decides results, or how processes understand each other; constraints.txt pins the rest.
PACKAGES = ("ray", "torch", "torchvision", "numpy", "pandas", "pydantic", "optuna", "mlflow")


class Upload(NamedTuple):
    """What Ray would send to the cluster of a working directory, before it is packed."""

    num_bytes: int
    num_package_bytes: int
    """Size of Ray's package of these files, at most 76 bytes too high."""
    num_files: int
    largest: tuple[tuple[str, int], ...]
    """Files and, with a slash at their end, folders right below the working directory."""


def measure_upload(folder: Path) -> Upload:
    """The folder's files less what .gitignore, .rayignore and Ray itself leave out."""
    sizes: dict[str, int] = {}
    empty: list[str] = []

    def see(path: Path) -> None:
        name = str(path.relative_to(folder))
        if path.is_file():
            sizes[name] = path.stat().st_size
        elif path.is_dir() and not any(path.iterdir()):
            empty.append(f"{name}/")

    visit_working_directory(folder, see)
    folders: Counter[str] = Counter()
    for path, size in sizes.items():
        first, slash, _ = path.partition("/")
        folders[first + slash] += size if slash else 0
    everything = Counter(sizes) + folders
    content = sum(sizes.values())
    headers = sum(ZIP_ENTRY_BYTES + 2 * len(os.fsencode(name)) for name in [*sizes, *empty])
    largest = tuple(everything.most_common(NUM_LARGEST))
    return Upload(content, content + headers + ZIP_END_BYTES, len(sizes), largest)


def check_upload(folder: Path, limit: int = MAX_PACKAGE_BYTES) -> Upload:
    """Raises ResourceError naming the largest files and folders where Ray would not take them."""
    upload = measure_upload(folder)
    if upload.num_package_bytes > limit:
        shown = "\n  ".join(f"{size / 1e6:8.1f} MB  {path}" for path, size in upload.largest)
        raise ResourceError(
            f"the upload must be at most {limit / 1e6:.4g} MB, for Ray's dashboard takes no more, "
            f"got {upload.num_package_bytes / 1e6:.4g} MB in {upload.num_files:,} files of "
            f"{folder}:\n"
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
    """Python's (without its patch level), ours, and those of PACKAGES, as installed here.

    Without the part that says how a package was built: a machine without a GPU may submit.
    """
    python = python_version().rpartition(".")[0]
    return {
        "python": python,
        "mtcon-ray": __version__,
        **{name: version(name).partition("+")[0] for name in PACKAGES},
    }


def read_requirements(path: Path) -> list[str]:
    """The packages that a file names, one on a line, as pip reads them; comments are left out.

    Raises UserError for a line that is more than that, or that holds a password.
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
    """What makes Ray give a job this environment's versions on every node, and more packages.

    Our own code is uploaded; pip brings what this package depends on, in the versions of here.
    Python and Ray are the cluster's. Raises UserError where this package is not installed.
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
        "pip": {
            "packages": [*pinned, *requirements],
            # Ray's own choice would download anew for every job.
            "pip_install_options": ["--disable-pip-version-check"],
        },
        "config": {"setup_timeout_seconds": SETUP_SECONDS},
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
        way_out = (
            f"a job cannot bring its own Python: submit from {here['python']}"
            if wanted["python"] != here["python"]
            else "install one constraints.txt on both, or submit with --install"
        )
        raise UserError(
            f"the cluster must have the versions of whoever submits to it, got {'; '.join(wrong)}; "
            f"{way_out}"
        )
