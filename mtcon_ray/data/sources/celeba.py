"""CelebA, faces with 40 attributes (Liu et al. 2015, arXiv:1411.7766), as it unpacks.

The tasks follow MultiSupCon (Zaigrajew and Zieba).
"""

from functools import cached_property

import numpy as np

from mtcon_ray.data.sources.download import Part, PhotosSource
from mtcon_ray.data.splits import LEFT_OUT, SPLITS
from mtcon_ray.data.text_file import read_attributes, read_fields
from mtcon_ray.errors import DataError

IMAGES, ATTRIBUTES, SPLIT = "img_align_celeba", "list_attr_celeba", "list_eval_partition"


class CelebaSource(PhotosSource):
    """The 40 attributes as a label set, and each attribute as a column of classes no and yes."""

    page = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    num_items = 202_599

    def parts(self) -> dict[str, Part]:
        # As the archives unpack, as the official folders are, and as Kaggle packs them.
        places = (f"{IMAGES}/{IMAGES}", IMAGES, f"Img/{IMAGES}")
        found = {"images": Part(places, f"{IMAGES}.zip of {self.page}")}
        for what, folder, n in (("attributes", "Anno", ATTRIBUTES), ("splits", "Eval", SPLIT)):
            places = (f"{n}.txt", f"{folder}/{n}.txt", f"{n}.csv")
            found[what] = Part(places, f"{n}.txt of {self.page}")
        return found

    @cached_property
    def _table(self) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """The images' names, object [N], and the values of each attribute, int8 [N] by name."""
        return read_attributes(self.path("attributes"))

    @cached_property
    def names(self) -> list[str]:
        return self.inside(list(self._table[0]), self.path("attributes"))

    def bits(self) -> tuple[np.ndarray, tuple[str, ...]]:
        _, columns = self._table
        return np.stack([v == 1 for v in columns.values()], axis=1).astype(np.uint8), (*columns,)

    def cells(self, label: str) -> np.ndarray:
        return np.where(self._table[1][label] == 1, "yes", "no").astype(object)

    def read_split(self) -> np.ndarray:
        path = self.path("splits")
        columns = read_fields(path, {"image": str, "split": np.int8}, more=False)
        # The codes are the indices of SPLITS.
        split_of = dict(zip(columns["image"], columns["split"], strict=True))
        split = np.array([split_of.get(name, LEFT_OUT) for name in self.names], dtype=np.int8)
        for row in np.flatnonzero((split < 0) | (split >= len(SPLITS)))[:1]:
            name = self.names[row]
            got = f"{split_of.get(name)} for {name}"
            raise DataError(f"{path} must have 0, 1 or 2 for each image, got {got}")
        return split
