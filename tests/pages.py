"""Shell blocks of the documentation, and the tests that run them."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from tests.processes import run

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = sorted(
    [REPOSITORY / "README.md", *DOCS.glob("*.md"), *DOCS.glob("results/*.md"),
     *(REPOSITORY / folder / "README.md" for folder in ("cluster", "docker", "experiments"))]
)  # fmt: skip
# Marks in the line above a block. A block without a mark is run with the others of its page.
NOT_RUN = re.compile(r"<!-- not run by our tests: (?P<reason>\S.*) -->")
RUN_BY = re.compile(r"<!-- run by (?P<file>tests/[\w/]+\.py)::(?P<test>\w+)(: .+)? -->")


class Block(NamedTuple):
    """A shell block of a page, and the line above it."""

    page: Path
    code: str
    above: str

    @property
    def place(self) -> str:
        """Page and line number of the block's first command."""
        text = self.page.read_text(encoding="utf-8")
        return f"{self.page.relative_to(REPOSITORY)}:{text[: text.index(self.code)].count(chr(10))}"

    @property
    def runs_with_its_page(self) -> bool:
        """True if the block has no mark."""
        return not self.above.startswith("<!--")


def blocks(page: Path) -> list[Block]:
    """Returns all shell blocks of a page, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^([^\n]*)\n```sh\n(.*?)^```", text, re.DOTALL | re.M)
    return [Block(page, code, above) for above, code in found]


BLOCKS = [block for page in PAGES for block in blocks(page)]


def run_by(test: str) -> list[Block]:
    """Returns the blocks that are marked as run by a test, `tests/file.py::name`; at least one."""
    found = [block for block in BLOCKS if f"run by {test}" in block.above]
    assert found, f"no page names {test}"
    return found


def own_environment(home: Path) -> dict[str, str]:
    """Returns variables of a user who has no repository, with pip's settings and cache of here."""
    own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    folders = {"XDG_CONFIG_HOME": ".config", "XDG_CACHE_HOME": ".cache"}
    settings = {name: str(Path.home() / folder) for name, folder in folders.items()}
    return {**settings, **own, "HOME": str(home)}


def run_shell(code: str, folder: Path, environment: dict[str, str], *alone: str) -> str:
    """Returns the output of commands; fails with the name of the one that failed."""
    trap = "trap 'echo \"failed: $BASH_COMMAND\" >&2' ERR"
    command = [*alone, "bash", "-euo", "pipefail", "-c", f"{trap}\n{code}"]
    return run(command, cwd=folder, env=environment, timeout=3000).stdout
