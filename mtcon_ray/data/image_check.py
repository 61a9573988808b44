"""Check, before training starts, that a table's images exist and that a sample can be decoded."""

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

# With one image in ten corrupt, a sample of 50 contains a corrupt one with probability 99.5 %.
# Decoding 50 large photographs takes one to two seconds.
SAMPLE = 50
THREADS = 8
MAX_SHOWN = 20
# Upper bound of the probability that acceptable data are refused because of their sample.
ERROR_RATE = 0.001


@dataclass(frozen=True)
class CheckedImages:
    """Result of the check of images before all of them are decoded.

    `bad` maps a row to the reason why its image is left out. `warning` describes corrupt images
    in the decoded sample, "" if there are none.
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
    """Looks for all files and decodes a sample of those that exist.

    `names` are the file names in the table's `column`. `decode` takes a row and returns {} or
    {row: reason}. `allowed` is the tolerated share of bad images, a fraction.

    Raises DataError if more than the `allowed` share is missing, or if the sample shows that more
    than it is missing or corrupt, at an error rate of ERROR_RATE.
    """
    absent = files.find_absent(names)
    bad = {i: f"row {table.rows[i]}, {names[i]}: no such file" for i in absent}
    most = allowed * len(names)
    if len(absent) > most:
        message = too_many_bad(f"{len(absent)} of {len(names)}", bad.values(), allowed)
        cause = likely_cause(files, [names[i] for i in absent], table, column)
        raise DataError(message + cause.replace("; ", "\n", 1))
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
    # A one-sided binomial test: refuse if this many corrupt images are too unlikely in a sample
    # from data whose share of corrupt images is just tolerated.
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
    """Returns the error message with the first MAX_SHOWN reasons; `got` states the number."""
    shown = "".join(f"\n  {reason}" for reason in islice(reasons, MAX_SHOWN))
    rest = f"\n  and {len(reasons) - MAX_SHOWN} more" if len(reasons) > MAX_SHOWN else ""
    return (
        f"at most {allowed:.2%} of the images may be missing or corrupt (data.max_bad_images), "
        f"got {got}:{shown}{rest}"
    )


def _chance(count: int, size: int, share: float) -> float:
    """Returns the binomial probability of `count` or more bad images among `size`.

    `share` is the probability that an image is bad.
    """
    return sum(comb(size, k) * share**k * (1 - share) ** (size - k) for k in range(count, size + 1))
