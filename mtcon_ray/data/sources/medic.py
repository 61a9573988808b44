"""MEDIC, photographs of disasters (Alam et al. 2023, arXiv:2108.12828), as it unpacks.

The recipe is that of MSCon (Mu, Guttag and Makar 2023, arXiv:2307.02712).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from mtcon_ray.data.class_names import doubtful_names
from mtcon_ray.data.decoding import decode_image
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.base import SOURCES
from mtcon_ray.data.sources.download import DownloadSource, DownloadSpec, Part, mscon_recipe
from mtcon_ray.data.sources.files import FilesSource, FilesSpec
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.data.table_file import TableFile, encode_columns, read_table_file

Label = Literal["damage_severity", "informative", "humanitarian", "disaster_types"]
# The files' words for SPLITS.
FILES = ("train", "dev", "test")
BELOW = "data/"  # all paths begin so


@SOURCES.register("medic")
class MedicSource(FilesSource, DownloadSource):
    """Four labels of each photograph, in the published splits."""

    class Spec(FilesSpec, DownloadSpec):
        """MEDIC; to hold a label out, name it in held_out and leave it out of tasks."""

        kind: Literal["medic"] = "medic"
        tasks: tuple[Label, ...] = Field(
            ("damage_severity", "informative", "humanitarian", "disaster_types"),
            min_length=1,
            description="labels to train on",
        )
        held_out: tuple[Label, ...] = Field(
            (), description="labels never trained on, probed once at the end"
        )
        allow_truncated: bool = Field(
            True,
            description="use JPEGs that are cut short, with grey for what is missing; false: they "
            "count as corrupt",
        )

    page = "https://crisisnlp.qcri.org/medic/"
    num_items = 71_198
    num_split = (49_353, 6_157, 15_688)
    num_classes: ClassVar[Mapping[str, int]] = {
        "damage_severity": 3, "informative": 2, "humanitarian": 4, "disaster_types": 7,
    }  # fmt: skip
    recipe: ClassVar[Mapping[str, Any]] = mscon_recipe(224, "resnet50", head_dim=64)
    spec: Spec

    def parts(self) -> dict[str, Part]:
        places = {file: (f"MEDIC_{file}.tsv", f"{file}.tsv") for file in FILES}
        found = {
            f"{split} labels": (*places[file], *(BELOW + place for place in places[file]))
            for split, file in zip(SPLITS, FILES, strict=True)
        }
        found["images"] = (BELOW.rstrip("/"),)
        return {what: Part(where, "MEDIC.tar.gz", self.page) for what, where in found.items()}

    @cached_property
    def files(self) -> ImageFolder:
        return self.folder("images")

    @cached_property
    def _tables(self) -> list[TableFile]:
        """The tables of the three splits."""
        return [read_table_file(self.path(f"{split} labels")) for split in SPLITS]

    @cached_property
    def names(self) -> list[str]:
        found = []
        for table in self._tables:
            paths = table.column("image_path")
            strange = np.array([not path.startswith(BELOW) for path in paths])
            table.refuse(strange, "image_path", f"begin with {BELOW}")
            names = [path.removeprefix(BELOW) for path in paths]
            self.refuse_outside(names, table.path)
            found += names
        return found

    def read_labels(self) -> LabelTable:
        cells = {c: np.concatenate([t.column(c) for t in self._tables]) for c in self.columns}
        labels, classes = encode_columns(cells)
        rows = [f"{row} of {t.path.name}" for t in self._tables for row in t.rows]
        warnings = [
            warning
            for column in self.columns
            for warning in doubtful_names(column, classes[column], labels[column], rows)
        ]
        sizes = [len(table.rows) for table in self._tables]
        return LabelTable(
            names=tuple(self.names),
            labels=labels,
            classes=classes,
            split=np.repeat(np.arange(len(SPLITS), dtype=np.int8), sizes),
            warnings=tuple(warnings),
        )

    def key_details(self) -> str:
        return f"truncated {self.spec.allow_truncated}"

    def decode_file(self, row: int, data: bytes, size: int) -> np.ndarray:
        spec = self.spec
        return decode_image(data, size, spec.resize, allow_truncated=spec.allow_truncated)
