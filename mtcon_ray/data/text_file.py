"""Text files of published data sets: lines, and fields of lines."""

import warnings
from collections.abc import Mapping
from io import TextIOWrapper
from itertools import islice
from pathlib import Path

import numpy as np

from mtcon_ray.base.regular_file import open_regular
from mtcon_ray.errors import DataError

MAX_TEXT_BYTES = 10**9


def read_lines(path: Path, most: int | None = None) -> list[str]:
    """Returns the lines of a text file, at most the first `most`, without their ends.

    Raises DataError if the file is unreadable.
    """
    try:
        with TextIOWrapper(open_regular(path, MAX_TEXT_BYTES), encoding="utf-8-sig") as file:
            return [line.rstrip("\n") for line in islice(file, most)]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path} as text in UTF-8: {error}") from None


def read_fields(
    path: Path, fields: Mapping[str, type], *, separator: str = r"\s+", skip: int = 0, more: bool
) -> dict[str, np.ndarray]:
    """Returns the first fields of each line after `skip` lines, [N] of the given type by name.

    `separator` is a regular expression. `more` allows further fields in any line, which are
    ignored. For files of millions of lines: strings are the only Python objects created.

    Raises DataError if the file cannot be read, or a line has other fields.
    """
    import pandas as pd

    try:
        with open_regular(path, MAX_TEXT_BYTES) as file, warnings.catch_warnings():
            # If all lines are too long, pandas cuts them off and warns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            frame = pd.read_csv(
                file, sep=separator, header=None, names=list(fields), skiprows=skip,
                dtype=dict(fields), usecols=range(len(fields)) if more else None, index_col=False,
                na_filter=False, encoding="utf-8",
            )  # fmt: skip
    # pandas' parser, invalid numbers and a wrong encoding raise kinds of ValueError.
    except (OSError, ValueError, pd.errors.ParserWarning) as error:
        what = "at least" if more else "just"
        raise DataError(
            f"{path} must have {what} {len(fields)} fields in each line after the first {skip}, "
            f"got: {error}"
        ) from None
    return {name: np.asarray(frame[name]) for name in fields}
