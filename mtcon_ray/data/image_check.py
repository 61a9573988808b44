"""Judgement on missing and corrupt images: how many are tolerated, and what a sample shows."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from math import comb

from mtcon_ray.errors import DataError

# With one image in ten corrupt, a sample of 50 contains a corrupt one with probability 99.5 %.
# Decoding 50 large photographs takes one to two seconds.
SAMPLE = 50
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


def too_many_bad(got: str, reasons: Collection[str], allowed: float) -> str:
    """Returns the error message with the first MAX_SHOWN reasons; `got` states the number."""
    shown = "".join(f"\n  {reason}" for reason in islice(reasons, MAX_SHOWN))
    rest = f"\n  and {len(reasons) - MAX_SHOWN} more" if len(reasons) > MAX_SHOWN else ""
    return (
        f"at most {allowed:.2%} of the images may be missing or corrupt (data.max_bad_images), "
        f"got {got}:{shown}{rest}"
    )


def judge_sample(corrupt: Mapping[int, str], size: int, share: float, allowed: float) -> str:
    """Returns a warning about the corrupt images among a sample of `size`, "" if there are none.

    `corrupt` maps rows to reasons. `share` is the share of corrupt images, among those that exist,
    with which the share of bad images is just the `allowed` one. Raises DataError if a larger share
    is shown at an error rate of ERROR_RATE.
    """
    got = f"{len(corrupt)} of a sample of {size}"
    # A one-sided binomial test: refuse if this many corrupt images are too unlikely in a sample
    # from data whose share of corrupt images is just tolerated.
    counts = range(len(corrupt), size + 1)
    chance = sum(comb(size, k) * share**k * (1 - share) ** (size - k) for k in counts)
    if chance < ERROR_RATE:
        raise DataError(too_many_bad(got, corrupt.values(), allowed))
    if not corrupt:
        return ""
    return (
        f"{got} images cannot be decoded, first {next(iter(corrupt.values()))}; if more than "
        f"{allowed:.2%} of all images are missing or corrupt, training stops"
    )
