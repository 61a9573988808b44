"""Ceilings of the package's size and of its prose. A change may lower a ceiling and never raise it.

A line of code is a line with a token that is neither a comment nor part of a docstring. Lines of
tests count in the same way, all Python files below tests/. A late import is an import statement
inside a function. A private function is any function or method in one of the modules that may use
private interfaces of Ray, Tune, Train and Optuna. Words are counted in docstrings, comments,
messages and help texts of Python files outside tests/, and in all pages.
"""

from pathlib import Path

from mtcon_ray.cli.main import COMMANDS
from tests.budgets import late_imports, lines_of_code, outer_functions, prose, rates
from tests.test_layers import LAYERS, PACKAGE, PRIVATE_HOMES, modules
from tests.test_project import repository_files

TESTS = Path(__file__).parent
LINES = 18_500
TEST_LINES_PER_LINE = 1.18
LOOSE_MODULES = 5
LAYER_ROWS = 15
NUM_COMMANDS = 24
PRIVATE_FUNCTIONS = 3
LATE_IMPORTS = 44
PER_1000_WORDS = {
    "that": 7,
    "one, those": 4,
    "whose, whatever": 0.8,
    "semicolons": 4,
    "so that": 0.4,
    "private words": 0.2,
}


def lines_below(folder: Path) -> int:
    return sum(lines_of_code(f.read_text(encoding="utf-8")) for f in folder.rglob("*.py"))


def test_lines_of_code() -> None:
    package, tests = lines_below(PACKAGE), lines_below(TESTS)
    assert package <= LINES
    assert tests / package <= TEST_LINES_PER_LINE


def test_modules_directly_in_the_package() -> None:
    found = sorted(f.stem for f in PACKAGE.glob("*.py") if f.stem != "__init__")
    assert len(found) <= LOOSE_MODULES, found


def test_rows_of_the_layer_table() -> None:
    assert len(LAYERS) <= LAYER_ROWS


def test_commands() -> None:
    assert len(COMMANDS) <= NUM_COMMANDS, sorted(COMMANDS)


def test_functions_on_private_interfaces() -> None:
    sources = [dict(modules())[home].read_text(encoding="utf-8") for home in PRIVATE_HOMES]
    assert sum(len(list(outer_functions(s))) for s in sources) <= PRIVATE_FUNCTIONS


def test_imports_inside_functions() -> None:
    assert sum(late_imports(f.read_text(encoding="utf-8")) for _, f in modules()) <= LATE_IMPORTS


def test_words_that_make_sentences_hard() -> None:
    files = [f for f in repository_files() if f.suffix in (".py", ".md")]
    found = rates([text for f in files if not f.is_relative_to(TESTS) for text in prose(f)])
    assert {k: round(v, 2) for k, v in found.items() if v > PER_1000_WORDS[k]} == {}
