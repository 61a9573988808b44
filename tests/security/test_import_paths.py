"""Folders of data, specs and results, which may be a stranger's, are on no import path."""

import shutil
import sys
from pathlib import Path

import pytest

from mtcon_ray.base import paths
from mtcon_ray.records.results import load_sweep
from tests.cli.conftest import run
from tests.processes import IN_TURN
from tests.security.stranger import Stranger, plant

pytestmark = [pytest.mark.ray, pytest.mark.mlflow, pytest.mark.slow]

COMMANDS = (
    "validate a.yaml", "plan a.yaml", "list", "status first", "best first", "report first",
    "audit first --repair", "export first --out out", "export first --to optuna", "clean first",
    "resume first --set search.num_trials=2", "train a.yaml", "schema",
    "init labels.csv images -o new.yaml", "evaluate model.pt",
)  # fmt: skip


def test_no_command_without_ray_runs_a_stranger_s_module(tmp_path: Path) -> None:
    """The records of the sweep `first` have modules beside them, too."""
    stranger = Stranger(tmp_path)
    first = ("--here", "--name", "first", "--root", stranger.root)
    assert run("sweep", stranger.data / "a.yaml", *first).exit_code == 0
    folder = paths.sweep_folder(stranger.root, "first")
    plant(folder, stranger.mark)
    checkpoint = paths.checkpoint_folder(folder, "trial-0000")
    shutil.copy(checkpoint / paths.MODEL_FILE, stranger.data / "model.pt")
    # Python looks for modules in the folder of the file, as with the installed program.
    (tmp_path / "program.py").write_text(IN_TURN)
    told = stranger.run(sys.executable, str(tmp_path / "program.py"), *COMMANDS)
    for line in COMMANDS:
        assert f"ended|{line}|0|" in told, told
    assert len(load_sweep(folder).trials) == 2


def test_a_trusted_plugin_brings_no_other_module_of_its_folder(tmp_path: Path) -> None:
    """The trial of a comparison uses it in a process of Ray's."""
    stranger = Stranger(tmp_path)
    command = (sys.executable, "-P", "-m", "mtcon_ray", "compare", "c.yaml", "--allow-plugins")
    stranger.run(*command, HOME=str(tmp_path))
    # After a local sweep `ray start --head` and `ray job submit` work as they did before it.
    assert not (tmp_path / ".ray").exists()
    (folder,) = paths.list_folders(stranger.root)
    assert load_sweep(folder).required_winner().name == "trial-0000"
