"""Tests of the repository's policies that no linter checks."""

import ast
import re
import runpy
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from mtcon_ray.cli.example_files import FOLDERS
from mtcon_ray.comparison.comparison_spec import load_comparison
from mtcon_ray.spec.run_spec import load_spec

REPOSITORY = Path(__file__).parent.parent
COMPARISONS = sorted((REPOSITORY / "experiments").glob("compare_*.yaml"))
EXPERIMENTS = sorted(set((REPOSITORY / "experiments").glob("*.yaml")) - set(COMPARISONS))
MAX_LINES = 350
VAGUE = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
QUESTION = re.compile(r"(What|Who|Whom|Whose|Which|Whether|Where|How|When|Whoever|Of)\b")
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
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout: which files are the project's is unknown")
    paths = [REPOSITORY / line for line in listed.stdout.splitlines()]
    return [p for p in paths if p.is_file()]


def project() -> dict[str, object]:
    """Returns the [project] table of pyproject.toml."""
    table = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert isinstance(table, dict)
    return table


def test_no_source_file_is_long() -> None:
    lengths = {
        str(p.relative_to(REPOSITORY)): len(p.read_text(encoding="utf-8").splitlines())
        for p in repository_files()
        if p.suffix == ".py"
    }
    assert lengths
    assert {name: n for name, n in lengths.items() if n > MAX_LINES} == {}


def docstrings() -> Iterator[tuple[str, str]]:
    """Yields each docstring of the repository with its place."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in repository_files():
        if path.suffix == ".py":
            name = path.relative_to(REPOSITORY)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, documented) and (text := ast.get_docstring(node)):
                    yield f"{name}:{getattr(node, 'lineno', 1)}", text


def test_no_docstring_opens_with_a_question_word() -> None:
    """A docstring says what something is or does; it does not answer an unwritten question."""
    assert [where for where, text in docstrings() if QUESTION.match(text)] == []


def test_no_module_has_a_vague_name() -> None:
    paths = [p.relative_to(REPOSITORY) for p in repository_files() if p.suffix == ".py"]
    assert [str(p) for p in paths if VAGUE & {*p.with_suffix("").parts}] == []


def test_only_siblings_of_one_kind_share_a_module_name() -> None:
    # `base.py` of each registry, `run.py` of a sweep and of a comparison, a method beside its loss,
    # a section beside what it configures.
    related = {"__init__", "base", "run"}
    methods = {path.stem for path in (REPOSITORY / "mtcon_ray" / "methods").glob("*.py")}
    losses = {path.stem for path in (REPOSITORY / "mtcon_ray" / "losses").glob("*.py")}
    modules = sorted((REPOSITORY / "mtcon_ray").rglob("*.py"))
    by_name: dict[str, list[str]] = {}
    for path in modules:
        if path.relative_to(REPOSITORY / "mtcon_ray").parts[0] != "spec":
            by_name.setdefault(path.stem, []).append(path.parent.name)
    shared = {name: folders for name, folders in by_name.items() if len(folders) > 1}
    pairs = {name for name in methods & losses if sorted(shared[name]) == ["losses", "methods"]}
    assert set(shared) - related - pairs == set()


def test_no_machine_path_or_package_index_in_any_file() -> None:
    found = []
    for path in repository_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        name = path.relative_to(REPOSITORY)
        found += [f"{name}:{i}: {t.strip()}" for i, t in enumerate(lines, 1) if MACHINE.search(t)]
    assert found == []


def test_constraints_pin_everything_that_the_project_names() -> None:
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = {}
    for line in lines:
        if line.startswith("#"):
            continue
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([\w.+!-]+)", line)
        assert match, f"a constraint must read name==version, got {line!r}"
        pins[canonicalize_name(match[1])] = match[2]
    table = project()
    extras = table["optional-dependencies"]
    assert isinstance(extras, dict)
    named = [table["dependencies"], *extras.values()]
    requirements = [Requirement(text) for group in named for text in group]
    assert len(requirements) > 10
    for requirement in requirements:
        version = pins.get(canonicalize_name(requirement.name))
        assert version, f"constraints.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(version), f"{requirement} excludes {version}"


def test_every_dependency_names_the_file_that_needs_it() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    block = text.split("\ndependencies = [", 1)[1].split("\n]", 1)[0]
    entries = [line for line in block.splitlines() if line.strip().startswith('"')]
    assert len(entries) == len(project()["dependencies"])  # type: ignore[arg-type]
    for entry in entries:
        comment = entry.partition("#")[2]
        paths = re.findall(r"[\w/]+\.py|[\w/]+/", comment)
        assert paths, f"no file named: {entry}"
        assert all((REPOSITORY / "mtcon_ray" / p).exists() for p in paths), entry


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda p: p.name)
def test_every_experiment_is_a_valid_spec(path: Path) -> None:
    photographs = ("data.csv=labels.csv", "data.images=images.tar")
    needs_them = "kind: table" in path.read_text(encoding="utf-8")
    assert load_spec(path, photographs if needs_them else ()).search.space


@pytest.mark.parametrize("path", COMPARISONS, ids=lambda p: p.name)
def test_every_comparison_is_valid(path: Path) -> None:
    comparison = load_comparison(path)
    assert len(comparison.specs) > 2
    assert comparison.claims


def test_one_command_runs_every_comparison(photos: Path) -> None:
    """The command runs on the photographs in their folder."""
    script = runpy.run_path(str(REPOSITORY / "experiments" / "compare_methods.py"))
    assert set(script["COMPARISONS"]) == {path.name for path in COMPARISONS}
    for folder, files in script["COMPARISONS"].values():
        assert [name for name in files.values() if not (photos / folder / name).exists()] == []


def test_the_package_names_every_python_that_it_supports() -> None:
    table = project()
    classifiers = table["classifiers"]
    assert isinstance(classifiers, list)
    named = [c.rpartition(" ")[2] for c in classifiers if c.startswith("Programming Language")]
    supported = SpecifierSet(str(table["requires-python"]))
    assert sorted(v for v in named if v.startswith("3.")) == [
        f"3.{minor}" for minor in range(30) if supported.contains(f"3.{minor}.0")
    ]


def test_every_build_has_the_example_files() -> None:
    """A wheel, an archive of the sources, and the image of docker/."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    targets = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"]["sources"] == {n: f"mtcon_ray/example_files/{n}" for n in FOLDERS}
    assert {"mtcon_ray", *FOLDERS} == set(targets["wheel"]["only-include"])
    assert {"mtcon_ray", *FOLDERS} <= set(targets["sdist"]["include"])
    docker = REPOSITORY / "docker"
    build = (docker / "Dockerfile").read_text(encoding="utf-8").partition("uv build --wheel")[0]
    sent = (docker / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert [name for name in FOLDERS if f"\nCOPY {name} {name}\n" not in build] == []
    assert {f"!{name}" for name in FOLDERS} <= set(sent)
