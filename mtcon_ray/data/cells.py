"""Meaning of a cell's text: nothing, yes or no, a class or a list of names.

Readers of tables and `init` use the same definition.
"""

import re
from collections.abc import Iterable

from mtcon_ray.spec.problem import UNKNOWN_BIT

# Words written by other programs into a cell without a value, in lower case.
WORDS_FOR_NOTHING = {
    "", "na", "n/a", "#n/a", "nan", "none", "null", "nil", "<na>", "?", "-", "unknown", "missing",
}  # fmt: skip
# Codes of `bit_of` in addition to 0 and 1.
MINUS_ONE, NO_BIT = 2, 3
BITS = {"1": 1, "true": 1, "yes": 1, "0": 0, "-0": 0, "false": 0, "no": 0, "-1": MINUS_ONE}
ZERO_DECIMALS = re.compile(r"(?<=[01])\.0+$")
# A list as a program prints it, such as [3, 1] or ['cat', 'dog'].
PRINTED_LIST = re.compile(r"\[[^]]*\]|\{[^}]*\}|\([^)]*\)|\[\s*[\[{(].*\]", re.DOTALL)


def words_for_nothing(names: Iterable[str]) -> set[str]:
    """Returns the class names that probably stand for a missing label.

    -1 is such a name among classes counted from 0. It is a value where 1 is the only other name, as
    in CelebA, or where other negative numbers occur.
    """
    words = {name: name.strip().casefold() for name in names}
    found = {name for name, word in words.items() if word in WORDS_FOR_NOTHING}
    minus = {name for name, word in words.items() if word in ("-1", "-1.0")}
    others = {*words.values()} - {"-1", "-1.0", *WORDS_FOR_NOTHING}
    if others <= {"1", "1.0"} or any(re.fullmatch(r"-\d.*", word) for word in others):
        return found
    return found | minus


def bit_of(text: str) -> int:
    """Returns 1 for 1, true and yes, 0 for 0, false and no.

    MINUS_ONE for -1, which is no in CelebA, and uncertain in CheXpert. UNKNOWN_BIT for no text, and
    NO_BIT for any other text.
    Numbers may have a decimal point, which pandas writes if some cells are empty.
    """
    return BITS.get(ZERO_DECIMALS.sub("", text.strip().lower()), NO_BIT) if text else UNKNOWN_BIT


def parts_of(text: str, separator: str) -> list[str]:
    """Returns the names in a cell with a list."""
    return [part.strip() for part in text.split(separator) if part.strip()]


def is_printed_list(text: str, separator: str) -> bool:
    """Returns True for several names in brackets, which are not part of the names."""
    return separator in text and PRINTED_LIST.fullmatch(text.strip()) is not None
