"""Tests that the messages quoted in docs/faq.md are those in the code."""

import ast
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.some import some
from tests.test_layers import modules

PAGE = Path(__file__).parents[1] / "docs" / "faq.md"
# Messages of Ray, and the file of Ray that contains them.
OF_RAY = {
    "401 ... Missing authentication token": "_private/authentication/http_token_authentication.py",
    "403 ... Invalid authentication token": "_private/authentication/http_token_authentication.py",
    "InvalidAuthToken": "_raylet.so",
}
VALUE = "\0"
# Values that vary: they are replaced in messages and in the fixed text of f-strings.
VALUES = re.compile(r"(?<!\w)'[^']*'|\.\.\.|\d[\d.%]*|\w\S*\w?\.\w+")
# Places where one literal may end and the next begin.
BETWEEN = re.compile(rf"[,;:?{VALUE}]|\bgot\b")


def quoted() -> list[str]:
    """Returns the text in backticks in the page's bold headings."""
    headings = re.findall(r"^\*\*(.+?)\*\*$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [q.replace("\n", " ") for heading in headings for q in re.findall("`(.+?)`", heading)]


def literals(source: str) -> list[str]:
    """Returns the strings of a program, with everything that varies replaced by VALUE."""
    found: list[str] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else VALUE for p in node.values]
            found.append("".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [VALUES.sub(VALUE, text) for text in found]


@cache
def ours() -> tuple[str, ...]:
    return tuple(text for _, f in modules() for text in literals(f.read_text(encoding="utf-8")))


@pytest.mark.parametrize("message", quoted())
def test_a_quoted_message_is_said_by_the_code(message: str) -> None:
    """At least half of its parts are literals, because others are composed."""
    texts = ours()
    if message in OF_RAY:
        ray = Path(some(some(find_spec("ray")).origin)).parent
        texts = ((ray / OF_RAY[message]).read_bytes().decode("latin-1"),)
    parts = [part.strip() for part in BETWEEN.split(VALUES.sub(VALUE, message)) if part.strip()]
    said = [part for part in parts if any(part in text for text in texts)]
    assert len(said) >= len(parts) / 2, said


def test_all_headings_were_read() -> None:
    assert {*OF_RAY} < set(quoted())
