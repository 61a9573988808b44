"""Checked labels of a spec for tests, read without opening its images."""

from mtcon_ray.data.labels import LabelTable, read_table
from mtcon_ray.data.sources import SOURCES, DataSpec


def labels_of(spec: DataSpec) -> LabelTable:
    """Returns the labels that `open_dataset` would read; spec names local files."""
    return read_table(SOURCES[spec.kind](spec))
