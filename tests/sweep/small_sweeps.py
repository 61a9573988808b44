"""A sweep that takes seconds, the command that starts it, and readers of its results."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mtcon_ray.base.paths import choose_root
from mtcon_ray.records.event_log import read_events
from mtcon_ray.records.events import Reported
from mtcon_ray.records.results import load_sweep
from mtcon_ray.records.stored import find_sweep
from mtcon_ray.sweep.audit import Audit
from mtcon_ray.training.uploads import NETWORKS
from tests import specs

TINY: dict[str, Any] = {
    **specs.SHORT,
    "version": 1,
    "name": "tiny",
    "train": {"epochs": 4, "batch_size": 32, "warmup_epochs": 1},
    "evaluate": {"every": 1, "bootstrap": 100},
    "tracking": {},
    "search": {
        "space": {"method.temperature": {"grid": [0.05, 0.1, 0.5]}},
        "sampler": "grid",
        "max_concurrent": 1,  # each process for trials takes seconds to start
    },
}


def command(*words: object, **variables: str) -> subprocess.Popen[str]:
    """Starts a command in its own process group, with `variables` in its environment."""
    return subprocess.Popen(
        [sys.executable, "-m", "mtcon_ray", *map(str, words)], env={**os.environ, **variables},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def epochs_of(folder: Path, trial: str) -> list[int]:
    events = read_events(folder / "events.jsonl")
    return [e.epoch for e in events if isinstance(e, Reported) and e.trial == trial]


def fetched(url: str, machine: Path, name: str) -> Path:
    """Copies a sweep below a URL with its networks to a machine; returns its folder there."""
    return find_sweep(choose_root(url, str(machine)), name, [*NETWORKS, "predictions.npz"])


def assert_whole(folder: Path, trials: int, epochs: int) -> None:
    """Asserts that all trials of a sweep have finished, with each epoch once and their files."""
    found = load_sweep(folder).trials
    assert [t.status for t in found] == ["FINISHED"] * trials, [t.reason for t in found]
    for trial in found:
        seen = epochs_of(folder, trial.name)
        assert seen == list(range(1, epochs + 1)), "an epoch is lost or there twice"
    audit = Audit(folder)
    assert [*audit.records(), *audit.files()] == []


# Patches mtcon_ray.training.trainer when it is imported, because sitecustomize runs in every
# process of Ray.
SITE = """
import importlib.abc, importlib.util, sys

class Patch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "mtcon_ray.training.trainer":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run_module = spec.loader.exec_module

        def exec_module(module):
            run_module(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec

{patch}
sys.meta_path.insert(0, Patch())
"""
FAILING_STEPS = """
def patch(module):
    from mtcon_ray.errors import OutOfMemoryError
    step = module.Trainer._train_step

    def fails(run):
        with run._memory_check():  # as an error of the step itself
            if {where}:
                raise {error}
        return step(run)

    module.Trainer._train_step = fails
"""


def failing_steps(folder: Path, where: str, error: str) -> str:
    """Returns a PYTHONPATH under which the training steps of a `run` raise an error.

    `where` and `error` are Python expressions. Trials train in Ray's processes, in which a test
    cannot patch in another way.
    """
    patch = FAILING_STEPS.replace("{where}", where).replace("{error}", error)
    return patched_trainer(folder, patch)


def patched_trainer(folder: Path, patch: str) -> str:
    """Returns a PYTHONPATH under which code calls its `patch` with the imported trainer module."""
    (site := folder / "site").mkdir()
    (site / "sitecustomize.py").write_text(SITE.replace("{patch}", patch))
    return os.pathsep.join([str(site), os.getcwd()])
