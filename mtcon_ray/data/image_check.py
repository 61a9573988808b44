"""Check, before anything expensive starts, that a table's images are there and can be decoded."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from math import comb

import numpy as np

from mtcon_ray.data.csv_file import CsvFile
from mtcon_ray.data.image_files import ImageFiles
from mtcon_ray.data.image_hints import evenly, likely_cause
from mtcon_ray.errors import DataError

# If one image in ten is corrupt, a sample of 50 holds one in 99.5 % of cases; and 50 large
# photographs are decoded in a second or two.
SAMPLE = 50
THREADS = 8
MAX_SHOWN = 20
# The most likely that data which are good enough are refused because of their sample.
ERROR_RATE = 0.001


@dataclass(frozen=True)
class CheckedImages:
    """What is known of images before all are decoded.

    `bad` is row to reason of images that are left out; `warning` is of a sample, "" without one.
    """

    bad: dict[int, str] = field(default_factory=dict)
    warning: str = ""


def check_images(
    files: ImageFiles,
    table: CsvFile,
    column: str,
    names: Sequence[str],
    allowed: float,
    decode: Callable[[int], dict[int, str]],
) -> CheckedImages:
    """Looks for all files and decodes a sample of those that are there.

    `names` are those of the table's `column`; `decode` returns row to reason if it fails.
    Raises DataError where more than the `allowed` share is missing or, surely, corrupt.
    """
    absent = files.find_absent(names)
    bad = {i: f"row {table.rows[i]}, {names[i]}: no such file" for i in absent}
    most = allowed * len(names)
    if len(absent) > most:
        message = too_many_bad(f"{len(absent)} of {len(names)}", bad.values(), allowed)
        rest = f"\n  and {len(absent) - MAX_SHOWN} more" if len(absent) > MAX_SHOWN else ""
        cause = likely_cause(files, [names[i] for i in absent], table, column)
        raise DataError(message + rest + cause.replace("; ", "\n", 1))
    there = np.setdiff1d(np.arange(len(names)), absent)
    sample = there[evenly(len(there), SAMPLE)]
    corrupt: dict[int, str] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for reasons in pool.map(decode, sample.tolist()):
            corrupt |= reasons
    if len(sample) == len(there):
        bad = dict(sorted((bad | corrupt).items()))
        if len(bad) > most:
            raise DataError(too_many_bad(f"{len(bad)} of {len(names)}", bad.values(), allowed))
        return CheckedImages(bad)
    of_sample = f"{len(corrupt)} of a sample of {len(sample)}"
    if _chance(len(corrupt), len(sample), (most - len(absent)) / len(there)) < ERROR_RATE:
        raise DataError(too_many_bad(of_sample, corrupt.values(), allowed))
    if not corrupt:
        return CheckedImages(bad)
    return CheckedImages(
        bad,
        f"{of_sample} images cannot be decoded, first {next(iter(corrupt.values()))}; if more "
        f"than {allowed:.2%} of all images are missing or corrupt, training stops",
    )


def too_many_bad(got: str, reasons: Collection[str], allowed: float) -> str:
    """Returns the error message with the first of the reasons; `got` is how many are bad."""
    shown = "".join(f"\n  {reason}" for reason in islice(reasons, MAX_SHOWN))
    return (
        f"at most {allowed:.2%} of the images may be missing or corrupt (data.max_bad_images), "
        f"got {got}:{shown}"
    )


def left_out(reasons: Collection[str]) -> str:
    """Returns the warning of images that belong to no split."""
    return f"{len(reasons)} images cannot be read and are left out, first {next(iter(reasons))}"


def _chance(count: int, size: int, share: float) -> float:
    """Probability of `count` or more bad ones in a sample of images of which `share` are bad."""
    return sum(comb(size, k) * share**k * (1 - share) ** (size - k) for k in range(count, size + 1))
