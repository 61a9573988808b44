"""Paths that the pages name exist; CITATION.cff fits pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from mtcon_ray.version import __version__

REPOSITORY = Path(__file__).parents[1]
FOLDERS = (
    "benchmarks",
    "cluster",
    "docker",
    "docs",
    "examples",
    "experiments",
    "mtcon_ray",
    "tests",
)
# In backticks, without the placeholder of a new file's name.
PATHS = re.compile(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`")


PAGES = (
    "CONTRIBUTING.md",
    "README.md",
    *(f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md")),
)


@pytest.mark.parametrize("page", PAGES)
def test_every_path_exists(page: str) -> None:
    paths = PATHS.findall((REPOSITORY / page).read_text(encoding="utf-8"))
    if page in ("CONTRIBUTING.md", "docs/architecture.md"):
        assert len(paths) > 10
    assert [p for p in paths if "NAME" not in p and not (REPOSITORY / p).exists()] == []


def test_the_citation_has_the_version_and_the_package_s_metadata() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text(encoding="utf-8"))
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    package = tomllib.loads(text)["project"]
    assert citation["version"] == __version__
    assert citation["license"] == package["license"] == "Apache-2.0"
    assert citation["authors"] == package["authors"]
    assert citation["abstract"] == f"{package['description']}."
    assert set(citation["keywords"]) <= set(package["keywords"])
