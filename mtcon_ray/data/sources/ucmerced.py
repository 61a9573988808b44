"""UC Merced Land Use (Yang and Newsam 2010) with the 17 labels of Chaudhuri et al. 2018.

Aerial photographs of 256 x 256 pixels, as the archives unpack.
"""

from functools import cached_property

import numpy as np

from mtcon_ray.data.sources.download import Part, PhotosSource
from mtcon_ray.data.table_file import TableFile, read_bits, read_table_file


class UcMercedSource(PhotosSource):
    """The 17 labels as a set, and the land use, which is the image's folder."""

    page = "http://weegee.vision.ucmerced.edu/datasets/landuse.html"
    num_items = 2_100

    def parts(self) -> dict[str, Part]:
        labels, top = "LandUse_Multilabeled.txt", "UCMerced_LandUse"
        places = (labels, f"{top}/{labels}", f"multilabels/{labels}")
        return {
            "images": Part((f"{top}/Images", "Images"), f"{top}.zip of {self.page}"),
            "labels": Part(places, "multilabels.zip of https://bigearth.eu/datasets"),
        }

    @cached_property
    def _table(self) -> TableFile:
        return read_table_file(self.path("labels"))

    @cached_property
    def _items(self) -> np.ndarray:
        """The items' names such as agricultural00, object [N] of str."""
        return self._table.column(next(iter(self._table.columns))).cells

    @cached_property
    def names(self) -> list[str]:
        uses = zip(self.cells("land_use"), self._items, strict=True)
        return self.inside([f"{use}/{item}.tif" for use, item in uses], self._table.path)

    def cells(self, label: str) -> np.ndarray:
        return np.array([item.rstrip("0123456789") for item in self._items], dtype=object)

    def bits(self) -> tuple[np.ndarray, tuple[str, ...]]:
        names = tuple(self._table.columns)[1:]
        return read_bits(self._table, names), names

    def read_split(self) -> np.ndarray:
        return self.drawn(self.cells("land_use"), self._items)
