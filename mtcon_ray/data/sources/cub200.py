"""Caltech-UCSD Birds 200-2011 (Wah et al. 2011, CNS-TR-2011-001), as it unpacks.

The tasks follow MTCon ("Multitask Contrastive Learning", openreview.net, id
UB03wcP8RH): size, shape and primary colour of the bird, with its species held out. The paper does
not say how the many ratings of an image become a single label, so `labels` offers two ways.
"""

from functools import cached_property

import numpy as np

from mtcon_ray.data.sources.download import Part, PhotosSource
from mtcon_ray.data.splits import SPLITS, stratified_split
from mtcon_ray.data.text_file import read_fields
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.published import CubSpec

VAL_SHARE = 0.1  # of the published training split
TOP = "CUB_200_2011/"
ARCHIVE = "CUB_200_2011.tgz"
# The first four fields of each line. A few lines have further fields.
RATINGS = dict.fromkeys(("image", "attribute", "present", "certainty"), np.int32)
FILES = {
    "images": "images",
    "paths": "images.txt",
    "species": "classes.txt",
    "species of images": "image_class_labels.txt",
    "splits": "train_test_split.txt",
    "attributes of images": "attributes/image_attribute_labels.txt",
    "attributes of species": "attributes/class_attribute_labels_continuous.txt",
}


class CubSource(PhotosSource):
    """The species, and for each group the attribute that describes the bird best."""

    page = "https://www.vision.caltech.edu/datasets/cub_200_2011/"
    num_items = 11_788
    spec: CubSpec

    def parts(self) -> dict[str, Part]:
        places: dict[str, tuple[str, ...]] = {w: (TOP + file, file) for w, file in FILES.items()}
        # In the archive it lies next to the folder. Copies of the data set often have it inside.
        name = "attributes.txt"
        within = (f"{TOP}attributes/{name}", f"attributes/{name}")
        places["names of attributes"] = (name, *within, f"../{name}")
        return {what: Part(found, f"{ARCHIVE} of {self.page}") for what, found in places.items()}

    def _by_id(self, what: str, value: type) -> tuple[np.ndarray, np.ndarray]:
        """Returns the columns of a file with an id and a value in each line."""
        ids, values = read_fields(self.path(what), {"id": np.int64, "": value}, more=False).values()
        return ids, values

    @cached_property
    def _images(self) -> tuple[np.ndarray, np.ndarray]:
        """The images' ids, int64 [N], and their paths, object [N] of str."""
        return self._by_id("paths", str)

    @cached_property
    def names(self) -> list[str]:
        return self.inside(self._images[1].tolist(), self.path("paths"))

    def _by_image(self, what: str) -> np.ndarray:
        """Returns the value of each image's line, int64 [N]."""
        ids, values = self._by_id(what, np.int64)
        if not np.array_equal(ids, self._images[0]):
            raise DataError(
                f"{self.path(what)} must have the images of {self.path('paths')} in their order, "
                f"got {len(ids)} other lines; unpack {ARCHIVE} again"
            )
        return values

    def read_split(self) -> np.ndarray:
        train = np.flatnonzero(self._by_image("splits"))
        split = np.full(len(self.names), SPLITS.index("test"), dtype=np.int8)
        # The first two splits of stratified_split are train and val.
        names, shares = self._images[1][train], (1 - VAL_SHARE, VAL_SHARE)
        split[train] = stratified_split(self._species[train], names, shares, self.spec.seed)
        return split

    @cached_property
    def _species(self) -> np.ndarray:
        """The species of each image, int64 [N], from 0."""
        return self._by_image("species of images") - 1

    @cached_property
    def _attributes(self) -> list[tuple[str, str]]:
        """The group and the name of each attribute, such as (size, small_(5_-_9_in))."""
        ids, texts = self._by_id("names of attributes", str)
        pairs = [text.partition("::")[::2] for text in texts[np.argsort(ids)]]
        return [(group.removeprefix("has_"), name) for group, name in pairs]

    @cached_property
    def _shares(self) -> np.ndarray:
        """The share of each species' images with each attribute, percent, float64 [200, 312]."""
        fields = {str(place): float for place in range(len(self._attributes))}
        columns = read_fields(self.path("attributes of species"), fields, more=False)
        return np.stack(list(columns.values()), axis=1)

    @cached_property
    def _certainties(self) -> np.ndarray:
        """The certainty, 1 to 4, with which an attribute was seen in an image, uint8 [N, 312].

        0 where it was not seen.
        """
        path, ids = self.path("attributes of images"), self._images[0]
        image, attribute, present, certainty = read_fields(path, RATINGS, more=True).values()
        found = np.zeros((max(image.max(), ids.max()) + 1, len(self._attributes) + 1), np.uint8)
        seen = present == 1
        found[image[seen], attribute[seen]] = certainty[seen]  # both ids count from 1
        return found[ids, 1:]

    def cells(self, label: str) -> np.ndarray:
        if label == "species":
            named = dict(zip(*self._by_id("species", str), strict=True))
            return np.array([named[species + 1] for species in self._species], dtype=object)
        group = [i for i, (of, _) in enumerate(self._attributes) if of == label]
        score = self._shares[self._species][:, group]
        if self.spec.labels == "image":
            certainty = self._certainties[:, group].astype(float)
            # Equal certainties are decided by the species, which adds at most 100 to the score.
            score = np.where(certainty > 0, 1000 * certainty + score, 0)
        best = np.where(score.max(axis=1) > 0, score.argmax(axis=1), -1)
        # Index -1 selects the last entry.
        names = np.array([*(self._attributes[i][1] for i in group), ""], dtype=object)
        return np.asarray(names[best])
