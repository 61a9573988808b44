"""A column of text: a number per cell, and each different text once."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Column:
    """The texts of N cells, "" where empty. Arrays must not be written.

    codes is int32 [N], an index into texts, object [L] of str: the different texts, sorted.
    """

    codes: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, cells: Sequence[str] | np.ndarray) -> "Column":
        """Returns a column with these cells."""
        builder = ColumnBuilder()
        builder.add(cells)
        return builder.column()

    def __len__(self) -> int:
        return len(self.codes)

    @cached_property
    def cells(self) -> np.ndarray:
        """The text of each cell, object [N] of str."""
        return np.asarray(self.texts[self.codes])

    @property
    def counts(self) -> Counter[str]:
        """The number of cells with each text, without empty cells."""
        numbers = np.bincount(self.codes, minlength=len(self.texts)).tolist()
        return Counter({t: n for t, n in zip(self.texts, numbers, strict=True) if t})

    def mapped(self, value_of: Callable[[str], Any], dtype: Any) -> np.ndarray:
        """Returns a value for each cell, [N]. Computes it once for each text."""
        values = np.fromiter(map(value_of, self.texts), dtype, len(self.texts))
        return np.asarray(values[self.codes])

    def rows(self, index: np.ndarray) -> "Column":
        """Returns the cells at these places."""
        found, codes = np.unique(self.codes[index], return_inverse=True)
        return Column(codes.astype(np.int32), self.texts[found])


class ColumnBuilder:
    """A column that is read in parts."""

    def __init__(self) -> None:
        # Gives each new text the next number.
        self._known: defaultdict[str, int] = defaultdict(count().__next__)
        self._parts: list[np.ndarray] = []

    def add(self, cells: Sequence[str] | np.ndarray) -> None:
        """Adds cells at the end."""
        self._parts.append(np.fromiter(map(self._known.__getitem__, cells), np.int32, len(cells)))

    def column(self) -> Column:
        """Returns all cells."""
        texts = sorted(self._known)
        place = np.empty(len(texts), np.int32)
        place[[self._known[text] for text in texts]] = np.arange(len(texts))
        codes = np.concatenate(self._parts or [np.empty(0, np.int32)])
        return Column(place[codes], np.array(texts, dtype=object))
