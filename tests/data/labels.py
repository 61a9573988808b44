"""Labels for tests: of a spec, read without opening its images, and of given codes."""

from collections.abc import Sequence

import numpy as np

from mtcon_ray.data.labels import LabelTable, read_table
from mtcon_ray.data.sources import SOURCES, DataSpec


def labels_of(spec: DataSpec) -> LabelTable:
    """Returns the labels that `open_dataset` would read; spec names local files."""
    return read_table(SOURCES[spec.kind](spec))


def coded(split: Sequence[int], **labels: Sequence[int]) -> LabelTable:
    """Returns a table of these splits and class codes; each column has four classes."""
    return LabelTable(
        names=tuple(map(str, range(len(split)))),
        labels={name: np.array(codes) for name, codes in labels.items()},
        classes=dict.fromkeys(labels, (*"abcd",)),
        split=np.array(split, dtype=np.int8),
    )
