"""Checked labels of a spec for tests, read without opening its images."""

from collections import Counter

from mtcon_ray.data.labels import LabelTable, read_table
from mtcon_ray.data.sources import SOURCES, DataSpec
from mtcon_ray.data.splits import SPLITS


def labels_of(spec: DataSpec) -> LabelTable:
    """Returns the labels that `open_dataset` would read; spec names local files."""
    return read_table(SOURCES[spec.kind](spec))


def counts(table: LabelTable, separator: str) -> dict[str, Counter[str]]:
    """Returns the number of items of each split, by their names before the last separator."""
    found: dict[str, Counter[str]] = {}
    for name, split in zip(table.names, table.split, strict=True):
        found.setdefault(name.rpartition(separator)[0], Counter())[SPLITS[split]] += 1
    return found
