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
    path: Path, fields: Mapping[str, type], *, skip: int = 0, more: bool
) -> dict[str, np.ndarray]:
    """Returns the first fields of each line after `skip` lines, [N] of the given type by name.

    Fields are separated by spaces, in a file *.csv by commas after a single line to skip. `more`
    allows further fields in any line, which are ignored. For files of millions of lines: strings
    are the only Python objects created.

    Raises DataError if the file cannot be read, or a line has other fields.
    """
    import pandas as pd

    separator, skip = (",", 1) if path.suffix == ".csv" else (r"\s+", skip)
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


def read_attributes(path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Returns the images' names, object [N], and the values of each attribute, int8 [N] by name.

    The format is CelebA's. Line 1 is the number of images, line 2 the attributes' names. Every
    other line has an image's name and a value for each attribute. A file *.csv is in Kaggle's
    packaging, with a line of names in place of the first two.

    Raises DataError if the file is unreadable, cut or malformed.
    """
    first, second, *_ = [*read_lines(path, 2), "", ""]
    first, is_csv = first.strip(), path.suffix == ".csv"
    if not is_csv and not first.isdecimal():
        raise DataError(f"{path} must begin with its number of images, got {first!r:.80}")
    names = first.split(",")[1:] if is_csv else second.split()
    if not names:
        raise DataError(f"{path} has no line of names below its first line")
    columns = read_fields(path, {"": str} | dict.fromkeys(names, np.int8), skip=2, more=False)
    images = columns.pop("")
    if not is_csv and first != str(len(images)):
        raise DataError(
            f"{path} lists {len(images)} images, but its first line says {first!r:.80}; "
            "the file may be cut: get the whole file"
        )
    return images, columns
