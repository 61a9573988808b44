"""UC Merced Land Use (Yang and Newsam 2010) with the 17 labels of Chaudhuri et al. 2018.

Aerial photographs of 256 x 256 pixels, as the archives unpack.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field

from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.base import SOURCES
from mtcon_ray.data.sources.download import DownloadSource, DownloadSpec, Part
from mtcon_ray.data.sources.files import FilesSource, FilesSpec
from mtcon_ray.data.splits import stratified_split
from mtcon_ray.data.table_file import TableFile, encode_columns, read_bits, read_table_file
from mtcon_ray.metrics import Kind

SPLIT_FRACTIONS = (0.7, 0.1, 0.2)
SET: Final = "labels"
CLASS: Final = "land_use"
Label = Literal["labels", "land_use"]


@SOURCES.register("ucmerced")
class UcMercedSource(FilesSource, DownloadSource):
    """The 17 labels as one set, and the land use, which is the image's folder."""

    class Spec(FilesSpec, DownloadSpec):
        """UC Merced, split 70/10/20; labels: labels (a set of 17), land_use (21 classes)."""

        kind: Literal["ucmerced"] = "ucmerced"
        tasks: tuple[Label, ...] = Field((SET,), min_length=1, description="labels to train on")
        held_out: tuple[Label, ...] = Field(
            (CLASS,), description="labels never trained on, probed once at the end"
        )

        def kind_of(self, name: str) -> Kind:
            return "set" if name == SET else "classes"

    page = "http://weegee.vision.ucmerced.edu/datasets/landuse.html"
    num_items = 2_100
    # No paper of the methods here trains on these images alone: a recipe for 1,470 of them.
    recipe: ClassVar[Mapping[str, Any]] = {
        "views.size": 128,
        "model.encoder": {"name": "resnet18"},
        "method": {"name": "multisupcon", "threshold": 0.3},
        "train.epochs": 200,
        "train.batch_size": 64,
    }
    spec: Spec

    def parts(self) -> dict[str, Part]:
        labels, top = "LandUse_Multilabeled.txt", "UCMerced_LandUse"
        places = (labels, f"{top}/{labels}", f"multilabels/{labels}")
        return {
            "images": Part((f"{top}/Images", "Images"), f"{top}.zip", self.page),
            "labels": Part(places, "multilabels.zip", "https://bigearth.eu/datasets"),
        }

    @cached_property
    def files(self) -> ImageFolder:
        return self.folder("images")

    @cached_property
    def _table(self) -> TableFile:
        return read_table_file(self.path("labels"))

    @cached_property
    def _items(self) -> np.ndarray:
        """The items' names such as agricultural00, object [N] of str."""
        return self._table.column(next(iter(self._table.columns)))

    @cached_property
    def _land_uses(self) -> np.ndarray:
        return np.array([item.rstrip("0123456789") for item in self._items], dtype=object)

    @cached_property
    def names(self) -> list[str]:
        pairs = zip(self._land_uses, self._items, strict=True)
        names = [f"{land_use}/{item}.tif" for land_use, item in pairs]
        self.refuse_outside(names, self._table.path)
        return names

    def read_labels(self) -> LabelTable:
        columns, table = self.columns, self._table
        labels, classes = encode_columns({c: self._land_uses for c in columns if c == CLASS})
        names = tuple(table.columns)[1:]
        has_set = SET in columns
        return LabelTable(
            names=tuple(self.names),
            labels=labels,
            classes=classes,
            split=stratified_split(self._land_uses, self._items, SPLIT_FRACTIONS, self.spec.seed),
            multi_hot={SET: read_bits(table, names, "")} if has_set else {},
            multi_hot_names={SET: names} if has_set else {},
        )
