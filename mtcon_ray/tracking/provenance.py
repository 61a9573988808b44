"""Provenance of a run as tags: code, versions, machine and command line, without secrets."""

import getpass
import json
import os
import platform
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from subprocess import DEVNULL, SubprocessError, check_output

import torch

from mtcon_ray.base import plugins
from mtcon_ray.base.cpus import usable_cpus
from mtcon_ray.data.prepared import SETS_TAG, Sets
from mtcon_ray.errors import SweepError
from mtcon_ray.records.results import first_tags
from mtcon_ray.spec.run_spec import RunSpec, dump_spec
from mtcon_ray.tracking.login import masked
from mtcon_ray.training.checkpoint import differences

PACKAGES = ("mtcon-ray", "torch", "torchvision", "numpy", "pandas", "ray", "optuna", "mlflow")
GIT_SECONDS = 10
# Tags of the sweep that identify its data, and the folder of their images.
FINGERPRINT = "mtcon.data_fingerprint"
CACHE = "mtcon.image_cache"
PLUGIN = "mtcon.plugin."  # of the tag of a plugin
# Fields to sort and filter runs in MLflow. The whole spec is an artifact.
SETTINGS = (
    "data.kind", "data.tasks", "data.held_out", "method.name", "method.weighting",
    "method.temperature", "model.encoder.name", "model.head_dim", "views.size", "train.epochs",
    "train.batch_size", "train.optimizer.name", "train.lr", "seed", "search.objective",
)  # fmt: skip


def provenance(folder: Path) -> dict[str, str]:
    """Returns tags `mtcon.*` of this process, and MLflow's own tags of user, source and version.

    They name the git state of `folder`, versions, plugins, hardware and the command. Unknown tags
    (no git, no GPU) are omitted.
    """
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    program = Path(sys.argv[0])
    script = program.parent.name if program.name == "__main__.py" else program.name
    tags = {
        "mtcon.version.python": platform.python_version(),
        "mtcon.platform": platform.platform(),
        "mtcon.cpus": str(usable_cpus()),
        "mtcon.memory_gib": f"{memory / 2**30:.1f}",
        "mtcon.command": masked(shlex.join(sys.argv)),
        "mlflow.source.name": script,
        "mlflow.source.type": "LOCAL",
        **{f"{PLUGIN}{name}": found for name, found in plugins.versions().items()},
    }
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            tags[f"mtcon.version.{package}"] = version(package)
    if gpus := [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]:
        tags["mtcon.gpus"] = ", ".join(gpus)
    with suppress(KeyError, OSError):  # a container's user id may have no entry in /etc/passwd
        tags["mlflow.user"] = getpass.getuser()
    # The folder may be a stranger's. This command of git runs no program of its `.git/config`.
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    with suppress(OSError, SubprocessError):
        commit = check_output(command, stderr=DEVNULL, text=True, timeout=GIT_SECONDS).strip()
        tags |= {"mtcon.git.commit": commit, "mlflow.source.git.commit": commit}
    return tags


def fixed_settings(spec: RunSpec) -> dict[str, str]:
    """Returns the fields of SETTINGS as text by dotted path, without searched fields.

    Fields missing from the spec's method or encoder are omitted. A list is shown with commas.
    """
    found, searched = {}, tuple(f"{path}." for path in spec.search.space)
    for path, _, value in differences({}, dump_spec(spec)):
        if path in SETTINGS and not f"{path}.".startswith(searched):
            found[path] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return found


def changed_since_start(folder: Path, tags: Mapping[str, str], sets: Sets) -> list[str]:
    """Returns a warning for each plugin that had another code or version at a sweep's start.

    `tags` are those of now. Accepts a missing or empty event log, and writes nothing. Raises
    SweepError if the sweep was started on other data, or on other data sets of a searched field.
    """
    begun, now = first_tags(folder), tags[FINGERPRINT]
    then = {key: found for key, (_, found) in json.loads(begun.get(SETS_TAG, "{}")).items()}
    changed = [key for key, (_, found) in sets.items() if then.get(key, found) != found]
    if changed or begun.get(FINGERPRINT, now) != now:
        what = "its images, labels, splits or groups have changed since its start"
        cure = "restore them, or start again with another --name"
        raise SweepError(f"{folder.name!r} cannot be resumed: {what}; {cure}")
    plugs = [t for t in tags if t.startswith(PLUGIN) and begun.get(t, tags[t]) != tags[t]]
    both = "trials of both codes are compared"
    return [f"{t.removeprefix('mtcon.')} was {begun[t]}, is {tags[t]}: {both}" for t in plugs]
