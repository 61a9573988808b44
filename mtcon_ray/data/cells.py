"""Meaning of a cell's text: nothing, yes or no, a number, a class or a list of names.

Readers of tables and `init` use the same definition. Columns are object [N] of str. Each different
text of a column is looked at once: a column of a million cells takes a tenth of a second.
"""

import re
from collections.abc import Collection, Iterable

import numpy as np

from mtcon_ray.spec.data.own import LIST_SEPARATOR
from mtcon_ray.spec.problem import UNKNOWN_BIT

SEPARATORS = (LIST_SEPARATOR, ";", ",")
# Words written by other programs into a cell without a value, in lower case.
WORDS_FOR_NOTHING = {
    "", "na", "n/a", "#n/a", "nan", "none", "null", "nil", "<na>", "?", "-", "unknown", "missing",
}  # fmt: skip
# Codes of `as_bits` in addition to 0, 1 and UNKNOWN_BIT.
MINUS_ONE, NO_BIT = 2, 3
BITS = {"true": 1, "yes": 1, "false": 0, "no": 0}
BIT = re.compile(r"-?[01](\.0+)?")
DECIMAL = re.compile(r"[-+]?\d+\.\d+([eE][-+]?\d+)?")
# A list as a program prints it, such as [3, 1] or ['cat', 'dog'].
PRINTED_LIST = re.compile(r"\[[^]]*\]|\{[^}]*\}|\([^)]*\)|\[\s*[\[{(].*\]", re.DOTALL)
# The square of a larger number, summed over a large table, exceeds float64.
LARGEST_NUMBER = 1e150


def distinct(cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the index of each cell's text, int64 [N], and the different texts, object [T] of str.

    The texts have the order of their first cells.
    """
    import pandas as pd

    # factorize hashes. np.unique sorts, which takes ten times as long for a million cells.
    codes, texts = pd.factorize(cells)
    return np.asarray(codes), np.asarray(texts, dtype=object)


def texts_of(cells: np.ndarray) -> dict[str, int]:
    """Returns the number of cells with each different text, without empty cells."""
    codes, texts = distinct(cells)
    counts = zip(texts, np.bincount(codes).tolist(), strict=True)
    return {str(text): count for text, count in counts if text != ""}


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


def as_bits(cells: np.ndarray) -> np.ndarray:
    """Returns a column of yes and no, uint8 [N].

    1 for 1, true and yes. 0 for 0, false and no. UNKNOWN_BIT for an empty cell. MINUS_ONE for -1,
    which is no in CelebA, and uncertain in CheXpert. NO_BIT for any other text. Numbers may have a
    decimal point, which pandas writes if some cells are empty.
    """
    codes, texts = distinct(cells)
    bits = np.array([_bit(str(text)) for text in texts], dtype=np.uint8)
    return np.asarray(bits[codes])


def _bit(text: str) -> int:
    word = text.strip().lower()
    if text == "":
        return UNKNOWN_BIT
    if BIT.fullmatch(word):
        number = int(float(word))
        return MINUS_ONE if number < 0 else number
    return BITS.get(word, NO_BIT)


def are_whole(texts: Iterable[str]) -> bool:
    """Returns True for whole numbers with a decimal point, such as 3.0."""
    return all(DECIMAL.fullmatch(text) and float(text).is_integer() for text in texts)


def are_decimals(texts: Iterable[str]) -> bool:
    """Returns True for numbers with a decimal point that `read_numbers` accepts."""
    return all(DECIMAL.fullmatch(text) and abs(float(text)) <= LARGEST_NUMBER for text in texts)


def parts_of(text: str, separator: str) -> list[str]:
    """Returns the names in a cell with a list."""
    return [part.strip() for part in text.split(separator) if part.strip()]


def is_printed_list(text: str, separator: str) -> bool:
    """Returns True for several names in brackets, which are not part of the names."""
    return separator in text and PRINTED_LIST.fullmatch(text.strip()) is not None


def separator_of(texts: Collection[str]) -> str | None:
    """Returns the separator of a column of lists, such as | for Mass|Edema, else None.

    Such a column has at most as many different names as different lists. Names of classes with a
    comma, sentences, lists in brackets, and numbers with a decimal comma are not lists.
    """
    for separator in SEPARATORS:
        if not any(separator in text for text in texts):
            continue
        if any(is_printed_list(text, separator) for text in texts):
            return None
        names = {name for text in texts for name in parts_of(text, separator)}
        is_decimal_comma = separator == "," and all(map(str.isdecimal, names))
        if 2 <= len(names) <= len(texts) and not is_decimal_comma:
            return separator
    return None
