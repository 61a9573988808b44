"""Tests of the documentation: its Python runs, and its methods, commands and links are valid."""

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import torch
import torch.nn.functional as F
import yaml

from mtcon_ray.cli.main import COMMANDS, command_named, program
from mtcon_ray.methods import METHODS
from mtcon_ray.spec.run_spec import parse_spec
from tests.pages import BLOCKS, DOCS, PAGES, REPOSITORY, Block

METHODS_TEXT = (DOCS / "methods.md").read_text(encoding="utf-8")
OF_METHOD = rf"`(\{{name: (?:{'|'.join(METHODS)})\b[^`]*\}})`"
SNIPPETS = sorted(set(re.findall(OF_METHOD, METHODS_TEXT)))


def test_every_method_is_shown() -> None:
    assert set(re.findall(r"\{name: (\w+)", " ".join(SNIPPETS))) == set(METHODS)


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_every_method_shown_is_valid(snippet: str) -> None:
    """Alternatives in a snippet are separated by bars; each of them must be valid."""
    raw: dict[str, Any] = {
        "name": "shown",
        "data": {"kind": "synthetic", "tasks": ["shape", "colour"]},
        "model": {"encoder": {"name": "small"}},
    }
    if "can" in snippet or "lgp" in snippet:
        raw["model"] = {"encoder": {"name": "vit"}}
    if "multisupcon" in snippet and "sets_from" not in snippet:
        raw["data"]["tasks"] = ["attributes"]
    first, *others = snippet.strip("{}").replace("category", "shape").split(" \\| ")
    stem, _, last = first.rpartition(": ")
    for value in (last, *others):
        raw["method"] = yaml.safe_load("{" + f"{stem}: {value}" + "}")
        assert parse_spec(raw).method.name == raw["method"]["name"]


def test_every_encoder_shown_is_valid() -> None:
    shown = re.findall(r"`(\{name: [^`]*\})`", (DOCS / "encoders.md").read_text(encoding="utf-8"))
    assert len(shown) == 7
    for snippet in shown:
        encoder = yaml.safe_load(snippet)
        found = parse_spec({"name": "shown", "model": {"encoder": encoder}}).model.encoder
        assert found.model_dump().items() >= encoder.items()


def test_the_losses_shown_run() -> None:
    names: dict[str, Any] = {
        **{name: F.normalize(torch.randn(4, 2, 3), dim=2) for name in ("z", "z1", "z2")},
        "labels": torch.tensor([0, 0, 1, -1]),
        "label_sets": torch.tensor([[1, 0], [1, 1], [0, 0], [0, 1]]),
        "labels_by_task": {t: torch.tensor([0, 0, 1, -1]) for t in ("category", "colour")},
        "s": {t: torch.tensor(0.1) for t in ("category", "colour")},
    }
    exec(METHODS_TEXT.split("```python\n")[1].split("```")[0], names)
    assert names["loss"].isfinite()


# mtcon-ray as a command. Other programs use it as a name of networks, namespaces and images.
COMMAND = re.compile(r"(?:^|&&|;|\s--\s|^\w+=\S+\s)\s*(mtcon-ray [^#|]*)")


def commands() -> Iterator[tuple[str, str]]:
    """Yields page and command line of each use of mtcon-ray in the documentation's blocks."""
    for block in BLOCKS:
        for line in block.code.replace("\\\n", " ").splitlines():
            if found := COMMAND.search(line.partition(" #")[0]):
                yield block.page.name, found[1].strip().removesuffix("&").strip()


@pytest.mark.parametrize(("page", "line"), sorted(set(commands())))
def test_every_command_shown_exists_with_its_options(page: str, line: str) -> None:
    name, *arguments = shlex.split(line.partition(" > ")[0])[1:]
    assert name in COMMANDS, page
    command = command_named(name)
    with click.Context(program, info_name="mtcon-ray") as parent:
        command.make_context(name, arguments, parent=parent)


STARTS = [b for b in BLOCKS if re.search(r"\bray (?:start --head|up)\b", b.code)]


@pytest.mark.parametrize("block", STARTS, ids=lambda block: block.place)
def test_every_cluster_shown_asks_for_a_token(block: Block) -> None:
    """A head without a token, or without RAY_AUTH_MODE, would accept anybody."""
    before = re.split(r"\bray (?:start --head|up)\b", block.code)[0]
    assert "ray get-auth-token --generate" in before
    assert re.search(r"\bexport [^\n;]*\bRAY_AUTH_MODE=token\b", before)


@pytest.mark.parametrize("page", ["spec", "commands"])
def test_reference_is_current(page: str) -> None:
    """The page equals the output of `python docs/reference.py`."""
    made = runpy.run_path(str(DOCS / "reference.py"))[f"{page}_page"]()
    assert (DOCS / f"{page}.md").read_text(encoding="utf-8") == made


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


FOLDERS = "benchmarks|cluster|docker|docs|examples|experiments|mtcon_ray|tests"
PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")
OTHERS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")
LINKED = [*PAGES, *(REPOSITORY / name for name in OTHERS)]


@pytest.mark.parametrize("page", LINKED, ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_and_paths_in_backticks_lead_somewhere(page: Path) -> None:
    text = page.read_text("utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http://", "https://")):
            continue
        place, _, anchor = target.partition("#")
        file = (page.parent / place).resolve() if place else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target
    found = set(re.findall(PATH, text)) - {"docker/secrets/"}
    assert [p for p in found if "NAME" not in p and not (REPOSITORY / p).exists()] == []


def test_every_page_is_listed() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name == "index.md" or f"({page.name})" in index


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_imports_of_the_pages_work(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"^from mtcon_ray\S* import (?:\([^)]*\)|.*)$", text, re.M):
        exec(line, {})
