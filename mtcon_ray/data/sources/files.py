"""Base of the kinds of data with images as files: their check, decoding and cache key."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import numpy as np

from mtcon_ray.base.registry import Configured, Table
from mtcon_ray.data.decoding import Decoded, Decoder, decode_files
from mtcon_ray.data.image_files import ImageFiles, ImageFolder
from mtcon_ray.data.labels import LabelTable, too_many_bad
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import SOURCES as SPECS, DataSpec, FilesSpec

# Part of the cache key: increase it if the same files would be decoded to other pixels.
VERSION = 2
CHECK_THREADS = 8
# If 10 % of images are corrupt, a sample of 50 contains a corrupt image with probability 99.5 %.
# Decoding 50 large photographs takes one to two seconds.
SAMPLE = 50


class DataSource(Configured, ABC):
    """Base class of the kinds of data. `Spec` is the section, which names the class in SOURCES.

    A plugin registers its class in SOURCES and nests its `Spec`.

    The constructor reads nothing. Everything random follows spec.seed. `decode` is called from
    `num_threads` threads, or from one for each core if there are fewer cores.
    """

    # A photograph takes 0.9 ms (to 64 pixels) to 1.9 ms (to 224), 0.08 ms of it with Python's lock.
    num_threads: ClassVar[int] = 32

    def __init__(self, spec: DataSpec) -> None:
        self.spec = spec

    @abstractmethod
    def read_labels(self) -> LabelTable:
        """Returns all labels, classes and splits, without label noise. Reads no image.

        Raises DataError if they cannot be read or are inconsistent.
        """

    @property
    def groups(self) -> np.ndarray | None:
        """The group of each item, object [N] of str, None if each name is a group by itself.

        `data.fraction` keeps or leaves out whole groups.
        """
        return None

    @abstractmethod
    def content_key(self) -> str:
        """Returns a hex digest, which depends on the content and the order of the images."""

    def signature(self) -> str | None:
        """Returns a digest computed at low cost, or None if the source has no such digest.

        Equal signatures imply equal content keys.
        """
        return None

    @abstractmethod
    def decode(self, rows: Sequence[int], size: int) -> tuple[np.ndarray, dict[int, str]]:
        """Returns the images of these rows, and {row: reason} of undecodable images.

        The images are uint8 [len(rows), size, size, 3], black where they cannot be decoded.
        """

    def check_images(self, size: int) -> tuple[dict[int, str], str]:
        """Looks for missing and corrupt images for about a second, before all are decoded.

        Returns {row: reason} of images to leave out, and a warning about corrupt images in a
        decoded sample, "" if there are no such images. Raises DataError if too many are bad.
        """
        return {}, ""

    @property
    def max_bad_fraction(self) -> float:
        """Tolerated share of undecodable images, a fraction."""
        return float(getattr(self.spec, "max_bad_images", 0.0))


# The table of the sections, typed by what SOURCES["name"] returns: the class of a kind of data.
SOURCES: Table[DataSource] = SPECS


class FilesSource(DataSource):
    """Base class of the kinds of data with images as files in a folder or an archive.

    allow_truncated makes the missing end of a JPEG grey.
    """

    allow_truncated: ClassVar[bool] = False
    spec: FilesSpec

    @property
    @abstractmethod
    def files(self) -> ImageFiles:
        """The folder or archive of the images."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """The name of each image within `files`, in the order of the items."""

    def describe(self, row: int) -> str:
        """Returns the words for an item in reasons of bad images."""
        return self.names[row]

    def key_details(self) -> str:
        """Returns text that changes if the pixels from the same files or `describe` change."""
        return "truncated True" if self.allow_truncated else ""

    def likely_cause(self, absent: Sequence[str]) -> str:
        """Returns a line with the likely cause of absent names, "" if none is recognised."""
        return ""

    def inside(self, names: list[str], where: Path) -> list[str]:
        """Returns the names. Raises DataError, citing `where`, if a name lies outside `files`."""
        if (outside := self.files.find_outside(names)) is not None:
            raise DataError(
                f"{where} must name files inside {self.files.root}, without links that lead "
                f"outside, got {names[outside]!r}"
            )
        return names

    def content_key(self) -> str:
        return self._keyed(self.files.digest(self.names))

    def signature(self) -> str | None:
        stamps = self.files.signature(self.names)
        return None if stamps is None else self._keyed(stamps)

    def _keyed(self, digest: str) -> str:
        how = f"{self.spec.kind} {VERSION} {self.spec.resize}"
        return hashlib.sha256(f"{how} {digest} {self.key_details()}".encode()).hexdigest()

    def check_images(self, size: int) -> tuple[dict[int, str], str]:
        names, allowed = self.names, self.spec.max_bad_images
        absent = self.files.find_absent(names)
        bad = {i: f"{self.describe(i)}: no such file" for i in absent}
        if len(bad) > allowed * len(names):
            cause = self.likely_cause([names[i] for i in absent])
            raise too_many_bad(f"{len(bad)} of {len(names)}", bad.values(), allowed, cause)
        there = np.setdiff1d(np.arange(len(names)), absent)
        sample = there[evenly(len(there), SAMPLE)]
        corrupt: dict[int, str] = {}
        with ThreadPoolExecutor(min(CHECK_THREADS, self.num_threads)) as pool:
            for _, reasons in pool.map(lambda row: self.decode([row], size), sample.tolist()):
                corrupt |= reasons
        if len(sample) == len(there):
            return dict(sorted((bad | corrupt).items())), ""
        got = f"{len(corrupt)} of a sample of {len(sample)}"
        if len(corrupt) > max(allowed, 0.5) * len(sample):
            raise too_many_bad(got, corrupt.values(), allowed)
        if not corrupt:
            return bad, ""
        return bad, (
            f"{got} images cannot be decoded, first {next(iter(corrupt.values()))}; if more than "
            f"{allowed:.2%} of all images are missing or corrupt, training stops"
        )

    @property
    def is_plain(self) -> bool:
        """True if other machines may read and decode the files without this class."""
        kept = type(self).decode is FilesSource.decode, self.num_threads == DataSource.num_threads
        return all(kept) and type(self.files) is ImageFolder

    def decode(self, rows: Sequence[int], size: int, decoder: Decoder = decode_files) -> Decoded:
        names = [self.names[row] for row in rows]
        images, bad = decoder(self.files, names, size, self.spec.resize, self.allow_truncated)
        return images, {rows[i]: f"{self.describe(rows[i])}: {why}" for i, why in bad.items()}


def evenly(count: int, most: int) -> np.ndarray:
    """Returns at most `most` indices below `count`, evenly spaced, ascending int64."""
    return np.linspace(0, count - 1, min(count, most)).round().astype(int)
