"""MEDIC, photographs of disasters (Alam et al. 2023, arXiv:2108.12828), as it unpacks."""

from functools import cached_property

import numpy as np

from mtcon_ray.data.class_names import doubtful_names
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.download import Part, PhotosSource
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.data.table_file import TableFile, read_table_file

FILES = {"train": "train", "val": "dev", "test": "test"}
BELOW = "data/"  # the start of all paths


class MedicSource(PhotosSource):
    """Four labels of each photograph, in the published splits."""

    page = "https://crisisnlp.qcri.org/medic/"
    num_items = 71_198
    allow_truncated = True  # as some of the published JPEGs are

    def parts(self) -> dict[str, Part]:
        origin = f"MEDIC.tar.gz of {self.page}"
        found = {"images": Part((BELOW.rstrip("/"),), origin)}
        for split, file in FILES.items():
            names = (f"MEDIC_{file}.tsv", f"{file}.tsv")
            found[f"{split} labels"] = Part((*names, *(BELOW + name for name in names)), origin)
        return found

    @cached_property
    def _tables(self) -> list[TableFile]:
        """The tables of the three splits."""
        return [read_table_file(self.path(f"{split} labels")) for split in SPLITS]

    @cached_property
    def names(self) -> list[str]:
        found = []
        for table in self._tables:
            paths = [path.removeprefix(BELOW) for path in table.column("image_path").cells]
            found += self.inside(paths, table.path)
        return found

    def cells(self, label: str) -> np.ndarray:
        return np.concatenate([table.column(label).cells for table in self._tables])

    def read_split(self) -> np.ndarray:
        sizes = [len(table.rows) for table in self._tables]
        return np.repeat(np.arange(len(SPLITS), dtype=np.int8), sizes)

    def doubts(self, table: LabelTable) -> list[str]:
        rows = [f"{row} of {t.path.name}" for t in self._tables for row in t.rows]
        return [
            warning
            for column, classes in table.classes.items()
            for warning in doubtful_names(column, classes, table.labels[column], rows)
        ]
