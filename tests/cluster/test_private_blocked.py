"""A distributed sweep on a Ray whose private modules only one module may import."""

import os
from pathlib import Path

import pytest
import yaml

from mtcon_ray.records.results import load_sweep
from tests import specs
from tests.processes import REPOSITORY, run_python
from tests.some import some
from tests.sweep.small_sweeps import epochs_of
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


def test_a_sweep_of_two_workers_uses_public_modules_alone(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    names = f"SEEN, HOMES, INTERNAL = {str(seen)!r}, {PRIVATE_HOMES!r}, {INTERNAL!r}\n"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(names + SITE)
    search = {**specs.GRID, "space": {"method.temperature": {"grid": [0.5]}}}
    spec = {**specs.TINY, "name": "public", "resources": {"workers": 2}, "search": search}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    path = os.pathsep.join([str(tmp_path / "site"), str(REPOSITORY)])
    words = ("sweep", "spec.yaml", "--root", "root", "--name", "public")
    run_python("-m", "mtcon_ray", *words, cwd=tmp_path, PYTHONPATH=path)
    lines = {tuple(line.split()) for line in seen.read_text().splitlines()}
    users = {user for _, user in lines}
    assert {"mtcon_ray.cluster.ray_private", "mtcon_ray.sweep.distributed_trial"} <= users
    assert len({process for process, _ in lines}) > 2  # the driver's, the trial's, the workers'
    results = load_sweep(tmp_path / "root" / "sweeps" / "public")
    plan, (trial,) = some(results.plan), results.trials
    assert (plan.concurrency, plan.cpus_per_trial) == (1, 2)
    assert results.winner is trial
    assert epochs_of(results.folder, trial.name) == [1, 2]
