"""The pages that show commands: each block, and what runs it."""

import re
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]
DOCS = REPOSITORY / "docs"
PAGES = sorted(
    [REPOSITORY / "README.md", *DOCS.glob("*.md"),
     *(REPOSITORY / folder / "README.md" for folder in ("cluster", "docker", "experiments"))]
)  # fmt: skip
# In the line above a block. Without either, the block runs with the others of its page.
NOT_RUN = re.compile(r"<!-- not run by our tests: (?P<reason>\S.*) -->")
RUN_BY = re.compile(r"<!-- run by (?P<file>tests/[\w/]+\.py)::(?P<test>\w+)(: .+)? -->")


class Block(NamedTuple):
    """Commands of a page, and the line above them."""

    page: Path
    code: str
    above: str

    @property
    def place(self) -> str:
        """The page, and the line of the block's first command."""
        text = self.page.read_text(encoding="utf-8")
        return f"{self.page.relative_to(REPOSITORY)}:{text[: text.index(self.code)].count(chr(10))}"

    @property
    def runs_with_its_page(self) -> bool:
        """Whether nothing else is said of it."""
        return not self.above.startswith("<!--")


def blocks(page: Path) -> list[Block]:
    """All blocks of shell commands, from top to bottom."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"^([^\n]*)\n```sh\n(.*?)^```", text, re.DOTALL | re.M)
    return [Block(page, code, above) for above, code in found]


def run_by(test: str) -> list[Block]:
    """The blocks that say that this test, as `tests/file.py::name`, runs them. Never none."""
    found = [block for page in PAGES for block in blocks(page) if f"run by {test}" in block.above]
    assert found, f"no page names {test}"
    return found
