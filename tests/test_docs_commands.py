"""Tests that run all commands in the documentation, except those marked with a reason."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests import pages
from tests.pages import BLOCKS, PAGES, REPOSITORY, Block, blocks
from tests.tables import write_table


def name_of(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


RUN_PAGES = [page for page in PAGES if any(b.runs_with_its_page for b in blocks(page))]
# Ray as the pages start it uses the default ports, and `ray stop` ends all of the user's Ray
# processes. It therefore runs in its own process and network namespaces, with its own folders of
# Ray.
ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
if os.geteuid():
    ALONE.append("--map-root-user")
PREPARE = """\
ip link set lo up
for folder in /tmp/ray /tmp/mtcon-ray-$(id -u); do
mkdir -p $folder; mount -t tmpfs tmpfs $folder
done
"""
# Overrides that make experiments small. They are appended, since a later `--set` takes precedence.
SMALL = (
    "views.size=16", "model.encoder.width=8", "train.epochs=2", "train.batch_size=16",
    "evaluate.every=1", "evaluate.bootstrap=20",
)  # fmt: skip
COMPARISON = REPOSITORY / "experiments" / "compare_methods.yaml"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_every_block_is_run_or_says_why_not(block: Block) -> None:
    """A test that a page names must exist and get its blocks from `run_by`."""
    if block.runs_with_its_page or pages.NOT_RUN.fullmatch(block.above):
        return
    named = pages.RUN_BY.fullmatch(block.above)
    assert named, block.above
    source = (REPOSITORY / named["file"]).read_text(encoding="utf-8")
    assert re.search(rf"^def {named['test']}\(", source, re.M), "no such test"
    assert "run_by(" in source


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_are_marked_as_such(page: Path) -> None:
    """Shell blocks are marked `sh`, by which tests find them."""
    text = page.read_text(encoding="utf-8")
    languages = set(re.findall(r"^[ >]*(?:```|~~~)(.+)", text, re.M))
    assert languages <= {"sh", "python", "yaml", "toml", "text", "{toctree}", "{eval-rst}", "json"}
    assert len(re.findall(r"^[ >]*(?:```|~~~)sh", text, re.M)) == len(blocks(page))


def user_folder(folder: Path) -> None:
    """Writes labels.csv, images/ and the other files that the pages assume."""
    for name in ("experiments", "cluster"):
        shutil.copytree(REPOSITORY / name, folder / name)
    for name in (".gitignore", ".rayignore"):
        shutil.copy(REPOSITORY / name, folder)
    sizes = {"category": 3, "gender": 2, "colour": 4, "brand": 5}
    labels = {name: [f"{name} {i}" for i in range(size)] for name, size in sizes.items()}
    labels["group_id"] = [f"{i}" for i in range(60)]
    write_table(folder, **labels, split=["train", "train", "train", "val", "test"])


def options(*values: str) -> str:
    return " ".join(f"--set '{value}'" for value in values)


def few_systems() -> str:
    """Returns `--only` options for some systems of the comparison, without long trainings."""
    systems = yaml.safe_load(COMPARISON.read_text(encoding="utf-8"))["systems"]
    short = [t for t, s in systems.items() if "train.epochs" not in s.get("changes", {})]
    return " ".join(f"--only '{title}'" for title in short[::8])


def environment_folder(folder: Path) -> None:
    """Writes a .venv with this environment's programs, which append options to experiments."""
    drawn = options("data.num_items=300", *SMALL)
    python, programs = sys.executable, Path(sys.executable).parent
    files = {
        "activate": f'PATH="{folder}/.venv/bin:{programs}:$PATH"; export PATH\n',
        "python": (
            f'case "$1" in experiments/sweep_*.py) set -- "$@" {drawn};; esac\nexec {python} "$@"\n'
        ),
        "mtcon-ray": (
            'case "$1 $2" in\n'
            f'"compare experiments/"*) set -- "$@" {options(*SMALL)} {few_systems()};;\n'
            f'"submit experiments/"* | "sweep experiments/"*) set -- "$@" {drawn};;\n'
            f'esac\nexec {python} -m mtcon_ray "$@"\n'
        ),
    }
    (folder / ".venv" / "bin").mkdir(parents=True)
    for name, text in files.items():
        path = folder / ".venv" / "bin" / name
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o700)


def commands(page: Path) -> str:
    """Returns all unmarked blocks of a page, after the commands that they presuppose.

    NAME is replaced by the newest sweep.
    """
    shown = "\n".join(block.code for block in blocks(page) if block.runs_with_its_page)
    before = ". .venv/bin/activate\n"
    if "init labels.csv" not in shown:
        before += "mtcon-ray init labels.csv images/ -o spec.yaml\n"
    if "submit" in shown and "ray start" not in shown:
        head = blocks(REPOSITORY / "cluster" / "README.md")[0].code
        before += re.split(r"(?<=ray start --head)", head)[0] + " --disable-usage-stats\n"
    return before + re.sub(r"\bNAME\b", '"$(ls -t ~/mtcon-ray/sweeps | head -1)"', shown)


def in_a_namespace() -> list[str]:
    """Returns the prefix that runs a command in own namespaces; skips if that is not allowed."""
    # `env` says it, too, if there is no such program.
    tried = subprocess.run(["env", *ALONE, "sh", "-ec", PREPARE], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"may not make the namespaces in which a page may start a Ray: {tried.stderr}")
    return ALONE


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.parametrize("page", RUN_PAGES, ids=name_of)
def test_every_block_of_commands_runs(page: Path, tmp_path: Path) -> None:
    """The blocks of a page run in one shell, in a temporary folder and home."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    user_folder(work)
    environment_folder(work)
    code = commands(page)
    alone = in_a_namespace() if "ray start" in code else []
    own = {k: v for k, v in os.environ.items() if not k.startswith("RAY_") or not alone}
    quiet = {"OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYTHONPATH": str(REPOSITORY)}
    environment = {**own, **quiet, "HOME": str(home)}
    pages.run_shell((PREPARE if alone else "") + code, work, environment, *alone)


FRESH = "tests/test_docs_commands.py::test_a_fresh_checkout_becomes_an_environment"


@pytest.mark.soak
@pytest.mark.ray
@pytest.mark.mlflow
@pytest.mark.parametrize("block", pages.run_by(FRESH), ids=lambda block: block.place)
def test_a_fresh_checkout_becomes_an_environment(block: Block, tmp_path: Path) -> None:
    """The commands run unchanged in a copy of the repository, including a full training."""
    ignored = shutil.ignore_patterns(".*", "_build", "__pycache__", "secrets", "*.egg-info")
    shutil.copytree(REPOSITORY, tmp_path / "copy", ignore=ignored)
    code = f"{block.code}\n.venv/bin/mtcon-ray --version"
    try:
        printed = pages.run_shell(code, tmp_path / "copy", pages.own_environment(tmp_path))
    finally:
        shutil.rmtree(tmp_path / "copy" / ".venv", ignore_errors=True)
    assert ("winner: trial-" in printed) == ("sweep_temperature.py" in block.code)
