"""Tests of the repository's policies that no linter checks."""

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mtcon_ray.spec.run_spec import load_spec

REPOSITORY = Path(__file__).parent.parent
COMPARISONS = sorted((REPOSITORY / "experiments").glob("compare_*.yaml"))
EXPERIMENTS = sorted(set((REPOSITORY / "experiments").glob("*.yaml")) - set(COMPARISONS))
MAX_LINES = 350
# Absolute paths of one machine, and package indexes.
MACHINE = re.compile(
    r"(?<![\w./~-])/(?:work|root|Users|tmp/w)(?![\w-])"
    r"|\b(?:pypi|pythonhosted|artifactory|jfrog|devpi|nexus)[\w-]*(?:\.[\w-]+)*\.(?:org|com|net|io|local)\b"
    r"|(?:index-url|extra-index-url)[= ]+\S+://"
)


def repository_files() -> list[Path]:
    """Returns the files that are, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout: which files are the project's is unknown")
    return [p for p in map(REPOSITORY.joinpath, listed.stdout.splitlines()) if p.is_file()]


def test_no_source_file_is_long() -> None:
    files = [p for p in repository_files() if p.suffix == ".py"]
    assert files
    assert [p for p in files if p.read_text(encoding="utf-8").count("\n") > MAX_LINES] == []


def test_no_machine_path_or_package_index_in_any_file() -> None:
    found = []
    for path in repository_files():
        lines = path.read_text(encoding="utf-8", errors="ignore").splitlines()
        name = path.relative_to(REPOSITORY)
        found += [f"{name}:{i}: {t.strip()}" for i, t in enumerate(lines, 1) if MACHINE.search(t)]
    assert found == []


def test_constraints_pin_everything_that_the_project_names() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {}
    for line in (line for line in lines if not line.startswith("#")):
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([\w.+!-]+)", line)
        assert match, f"a constraint must read name==version, got {line!r}"
        pins[canonicalize_name(match[1])] = match[2]
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [table["dependencies"], *table["optional-dependencies"].values()]
    requirements = [Requirement(text) for group in named for text in group]
    assert len(requirements) > 10
    for requirement in requirements:
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"constraints.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(version), f"{requirement} excludes {version}"


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.name)
def test_every_experiment_is_a_valid_spec(path: Path) -> None:
    photographs = ("data.csv=labels.csv", "data.images=images.tar")
    needs_them = "kind: table" in path.read_text(encoding="utf-8")
    assert load_spec(path, photographs if needs_them else ()).search.space


def test_one_command_runs_every_comparison(photos: Path) -> None:
    """The command runs on the photographs in their folder."""
    script = runpy.run_path(str(REPOSITORY / "experiments" / "compare_methods.py"))
    assert set(script["COMPARISONS"]) == {path.name for path in COMPARISONS}
    for folder, files in script["COMPARISONS"].values():
        assert [name for name in files.values() if not (photos / folder / name).exists()] == []
