"""Doubtful names of classes: several spellings of a name, and words for a missing value."""

import re
import unicodedata
from collections.abc import Sequence
from decimal import Decimal

import numpy as np

from mtcon_ray.data.cells import words_for_nothing

NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d{1,4})?", re.ASCII)
MAX_SHOWN = 5


def doubtful_names(
    column: str,
    names: Sequence[str],
    codes: np.ndarray,
    rows: np.ndarray | Sequence[str],
    row: str = "row",
    what: str = "label",
) -> list[str]:
    """Returns warnings of class names with equal `spelling_key`, and of words for a missing value.

    `codes`, int64 [N], has the class of each item. `rows` names each item in messages, after the
    word `row`.
    """
    found, first, counts = np.unique(codes, return_index=True, return_counts=True)
    numbers = zip(found, first, counts, strict=True)
    facts = {int(code): f"({n} rows, first {row} {rows[place]})" for code, place, n in numbers}
    nothing = words_for_nothing(names)
    alike: dict[str | Decimal, list[int]] = {"": []}  # "" collects the words for nothing
    for code, name in enumerate(names):
        alike.setdefault("" if name in nothing else spelling_key(name), []).append(code)

    def listed(same: list[int], link: str) -> str:
        # Only the numbers of the characters differ if the names look the same.
        looks = {unicodedata.normalize("NFKC", names[code]) for code in same}
        shown = repr if len(looks) == len(same) else ascii
        return link.join(f"{shown(names[code])} {facts[code]}" for code in same[:MAX_SHOWN])

    warnings = []
    if words := alike.pop(""):
        warnings.append(
            f"{what} column {column!r}: {listed(words, ', ')} count as {what}s of their own; empty "
            f"the cells whose {what} is missing"
        )
    if several := [same for same in alike.values() if len(same) > 1]:
        groups = [listed(same, " and ") for same in several[:MAX_SHOWN]]
        if len(several) > MAX_SHOWN:
            groups.append(f"and the spellings of {len(several) - MAX_SHOWN} more {what}s")
        warnings.append(
            f"{what} column {column!r}: {', '.join(groups)} count as different {what}s; write them "
            "alike if they are one"
        )
    return warnings


def spelling_key(name: str) -> str | Decimal:
    """Returns the same key for all spellings of a name.

    The key ignores letter case, the kind and amount of white space, characters without a width,
    other encodings of a character (Unicode's NFKC), and zeros without an effect on a number.
    """
    text = unicodedata.normalize("NFKC", name)
    text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    text = " ".join(text.split()).casefold()
    return Decimal(text) if NUMBER.fullmatch(text) else text
