"""A sweep on a Ray whose private modules this package may not import, except in one module."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import specs
from tests.test_layers import INTERNAL, PRIVATE_HOMES

pytestmark = pytest.mark.ray

# Runs in each Python process, those of Ray too. Libraries import each other's private modules. A
# module of the package that tries to gets an error. Each module that imports Ray leaves its name.
SITE = """
import builtins, os

imported = builtins.__import__

def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    user = (globals or {}).get("__name__", "")
    if user.startswith("mtcon_ray.") and name.split(".")[0] == "ray":
        with open(SEEN, "a") as seen:
            seen.write(f"{os.getpid()} {user}\\n")
        names = [f"{name}.{each}" for each in fromlist or ()] or [name]
        private = [n for n in names if f".{n}".find("._") > 0 or n.startswith(INTERNAL)]
        if private and user not in HOMES:
            raise ImportError(f"{user} imports {private}")
    return imported(name, globals, locals, fromlist, level)

builtins.__import__ = guarded
"""


def test_a_sweep_and_its_workers_use_public_modules_alone(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    names = f"SEEN, HOMES, INTERNAL = {str(seen)!r}, {PRIVATE_HOMES!r}, {INTERNAL!r}\n"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(names + SITE)
    spec = {
        **specs.TINY, "version": 1, "name": "public",
        "resources": {"workers": 2},
        "search": {"space": {"method.temperature": {"grid": [0.1, 0.5]}}, "sampler": "grid"},
    }  # fmt: skip
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    path = os.pathsep.join([str(tmp_path / "site"), os.getcwd()])
    command = [sys.executable, "-m", "mtcon_ray", "sweep", str(tmp_path / "spec.yaml")]
    done = subprocess.run(
        [*command, "--root", str(tmp_path / "root"), "--name", "public"],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {tuple(line.split()) for line in seen.read_text().splitlines()}
    users = {user for _, user in lines}
    assert {"mtcon_ray.cluster.ray_private", "mtcon_ray.sweep.distributed_trial"} <= users
    assert len({process for process, _ in lines}) > 2  # the driver's, the trials', the workers'
