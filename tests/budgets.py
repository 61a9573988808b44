"""Counts of the budgets in test_budgets.py: lines, late imports, private uses, words."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# Words that make sentences hard to read, by name of their budget.
WORDS = {
    "that": r"\bthat\b",
    "one, those": r"\b(?:ones?|those)\b",
    "whose, whatever": r"\b(?:of which|whose|whom|whatever|whoever)\b",
    "semicolons": r";(?=\s)",
    "so that": r"\bso that\b",
    "private words": r"\b(?:goes? on|going on|(?:is|are) there|besides?|shall|way (?:on|out)"
    r"|to the letter|told apart|(?:is|are|as it is) told|anew|the same holds)\b",
}
# Calls whose strings people read.
SPEAKING = re.compile(
    r"(?:Error|Option|Argument|Field|Unit|print|info|warning|error|debug|on_note|on_phase|help"
    r"|echo)$"
)
UNREAD = re.compile(r"```.*?```|<!--.*?-->|`[^`]*`|\]\([^)]*\)", re.DOTALL)


def lines_of_code(source: str) -> int:
    """Returns the number of lines that are neither blank, comment nor docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            lines.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def late_imports(source: str) -> int:
    """Returns the number of import statements inside functions."""
    found = {
        (inner.lineno, inner.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, FUNCTIONS)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    }
    return len(found)


def outer_functions(source: str) -> Iterator[ast.AST]:
    """Yields each function of a module and each method of its classes."""
    tree = ast.parse(source)
    bodies = [tree.body, *(n.body for n in tree.body if isinstance(n, ast.ClassDef))]
    yield from (node for body in bodies for node in body if isinstance(node, FUNCTIONS))


def spoken(call: ast.Call) -> Iterator[str]:
    """Yields each argument of a call as text, with x for each other constant."""
    if SPEAKING.search(ast.unparse(call.func)):
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            constants = [n.value for n in ast.walk(argument) if isinstance(n, ast.Constant)]
            text = " ".join(value if isinstance(value, str) else "x" for value in constants)
            if len(text.split()) > 3:
                yield text


def prose(path: Path) -> Iterator[str]:
    """Yields docstrings, comments and messages of a Python file, or the text of a page."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield UNREAD.sub(" ", source)
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED):
            yield re.sub(r">>>.*|`[^`]*`", " ", ast.get_docstring(node) or "")
        elif isinstance(node, ast.Call):
            yield from spoken(node)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("# ")


def rates(texts: list[str]) -> dict[str, float]:
    """Returns the occurrences of each entry of WORDS per 1,000 words."""
    words = sum(len(text.split()) for text in texts)
    found = {n: sum(len(re.findall(p, text, re.I)) for text in texts) for n, p in WORDS.items()}
    return {name: 1000 * count / words for name, count in found.items()}
