"""Interface of data sources: labels all at once and cheaply, images in batches of rows."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from mtcon_ray.base.registry import Configured, Table
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.spec.data.base import SOURCES as SPECS
from mtcon_ray.spec.data.base import DataSpec

__all__ = ["SOURCES", "DataSource", "DataSpec", "LabelTable"]


class DataSource(Configured, ABC):
    """Base class of the kinds of data. `Spec` is the section, which names the class in SOURCES.

    A plugin registers its class in SOURCES and nests its `Spec`.

    The constructor reads nothing. Everything random follows spec.seed.
    """

    def __init__(self, spec: DataSpec) -> None:
        self.spec = spec

    @abstractmethod
    def read_labels(self) -> LabelTable:
        """Returns all labels, classes and splits, without label noise. Reads no image.

        Raises DataError if they cannot be read or are inconsistent.
        """

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

        The images are uint8 [len(rows), size, size, 3], black where they cannot be decoded. Called
        from several threads.
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
        return 0.0


# The table of the sections, typed by what SOURCES["name"] returns: the class of a kind of data.
SOURCES: Table[DataSource] = SPECS
