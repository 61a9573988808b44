"""Caltech-UCSD Birds 200-2011 (Wah et al. 2011, CNS-TR-2011-001), as it unpacks.

The tasks follow MTCon ("Multitask Contrastive Learning", openreview.net, id
UB03wcP8RH): size, shape and primary colour of the bird, with its species held out. The paper does
not say how the many ratings of an image become a single label, so `labels` offers two ways.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar

import numpy as np

from mtcon_ray.data.decoding import decode_image
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

    Spec = CubSpec

    page = "https://www.vision.caltech.edu/datasets/cub_200_2011/"
    num_items = 11_788
    num_split = (5_394, 600, 5_794)
    num_classes: ClassVar[Mapping[str, int]] = {"species": 200}
    archives = (ARCHIVE,)
    md5: ClassVar[Mapping[str, str]] = {ARCHIVE: "97eceeb196236b17998738112f37df78"}
    spec: CubSpec

    def parts(self) -> dict[str, Part]:
        files = FILES | ({"bounding boxes": "bounding_boxes.txt"} if self.spec.crop else {})
        places: dict[str, tuple[str, ...]] = {w: (TOP + file, file) for w, file in files.items()}
        # In the archive it lies next to the folder. Copies of the data set often have it inside.
        name = "attributes.txt"
        within = (f"{TOP}attributes/{name}", f"attributes/{name}")
        places["names of attributes"] = (name, *within, f"../{name}")
        return {what: Part(found, f"{ARCHIVE} of {self.page}") for what, found in places.items()}

    def _by_id(self, what: str, *types: type) -> list[np.ndarray]:
        """Returns the columns of a file with an id and values in each line, the ids first."""
        fields = {str(place): each for place, each in enumerate((np.int64, *types))}
        return list(read_fields(self.path(what), fields, more=False).values())

    @cached_property
    def _images(self) -> tuple[np.ndarray, np.ndarray]:
        """The images' ids, int64 [N], and their paths, object [N] of str."""
        ids, paths = self._by_id("paths", str)
        return ids, paths

    @cached_property
    def names(self) -> list[str]:
        return self.inside(self._images[1].tolist(), self.path("paths"))

    def _by_image(self, what: str, *types: type) -> np.ndarray:
        """Returns the values of each image's line, [N, values]."""
        ids, *values = self._by_id(what, *types)
        if not np.array_equal(ids, self._images[0]):
            raise DataError(
                f"{self.path(what)} must have the images of {self.path('paths')} in their order, "
                f"got {len(ids)} other lines; unpack {ARCHIVE} again"
            )
        return np.stack(values, axis=1)

    def _refuse(self, bad: np.ndarray, what: str, rule: str) -> None:
        """Raises DataError for the first image where `bad`, bool [N], is True."""
        for row in np.flatnonzero(bad)[:1]:
            image = self._images[0][row]
            raise DataError(f"{self.path(what)} must have {rule} for each image, not for {image}")

    def read_split(self) -> np.ndarray:
        is_train = self._by_image("splits", np.int64)[:, 0]
        self._refuse(~np.isin(is_train, (0, 1)), "splits", "0 or 1")
        split = np.full(len(is_train), SPLITS.index("test"), dtype=np.int8)
        train = np.flatnonzero(is_train)
        # The first two splits of stratified_split are train and val.
        names, shares = self._images[1][train], (1 - VAL_SHARE, VAL_SHARE)
        split[train] = stratified_split(self._species[train], names, shares, self.spec.seed)
        return split

    @cached_property
    def _species(self) -> np.ndarray:
        """The species of each image, int64 [N], from 0."""
        what = "species of images"
        species, known = self._by_image(what, np.int64)[:, 0], self._by_id("species", str)[0]
        self._refuse(~np.isin(species, known), what, f"an id of {self.path('species').name}")
        return species - 1

    @cached_property
    def _attributes(self) -> list[tuple[str, str]]:
        """The group and the name of each attribute, such as (size, small_(5_-_9_in))."""
        ids, texts = self._by_id("names of attributes", str)
        pairs = [text.partition("::")[::2] for text in texts[np.argsort(ids)]]
        return [(group.removeprefix("has_"), name) for group, name in pairs]

    @cached_property
    def _shares(self) -> np.ndarray:
        """The share of each species' images with each attribute, percent, float64 [200, 312]."""
        path = self.path("attributes of species")
        fields = {str(place): float for place in range(len(self._attributes))}
        shares = np.stack(list(read_fields(path, fields, more=False).values()), axis=1)
        if len(shares) <= self._species.max():
            raise DataError(f"{path} must have a line for each species, got {len(shares)} lines")
        return shares

    @cached_property
    def _certainties(self) -> np.ndarray:
        """The certainty, 1 to 4, with which an attribute was seen in an image, uint8 [N, 312].

        0 where it was not seen.
        """
        path = self.path("attributes of images")
        ids, most = self._images[0], len(self._attributes)
        image, attribute, present, certainty = read_fields(path, RATINGS, more=True).values()
        for line in np.flatnonzero((image < 0) | (attribute < 1) | (attribute > most))[:1]:
            raise DataError(
                f"{path} must begin each line with the ids of an image and of an attribute up to "
                f"{most}, got {image[line]} and {attribute[line]} in line {line + 1}"
            )
        row_of = np.full(max(image.max(), ids.max()) + 1, -1)
        row_of[ids] = np.arange(len(ids))
        found = np.zeros((len(ids), most), dtype=np.uint8)
        seen = (present == 1) & (row_of[image] >= 0)
        found[row_of[image[seen]], attribute[seen] - 1] = certainty[seen]
        return found

    def cells(self, label: str) -> np.ndarray:
        if label == "species":
            named = dict(zip(*self._by_id("species", str), strict=True))
            return np.array([named[species + 1] for species in self._species], dtype=object)
        group = [i for i, (of, _) in enumerate(self._attributes) if of == label]
        if not group:
            raise DataError(
                f"{self.path('names of attributes')} has no attributes has_{label}::..."
            )
        score = self._shares[self._species][:, group]
        if self.spec.labels == "image":
            certainty = self._certainties[:, group].astype(float)
            # Equal certainties are decided by the species, which adds at most 100 to the score.
            score = np.where(certainty > 0, 1000 * certainty + score, 0)
        best = np.where(score.max(axis=1) > 0, score.argmax(axis=1), -1)
        # Index -1 selects the last entry.
        names = np.array([*(self._attributes[i][1] for i in group), ""], dtype=object)
        return np.asarray(names[best])

    @cached_property
    def _boxes(self) -> list[tuple[float, float, float, float]]:
        boxes = self._by_image("bounding boxes", float, float, float, float)
        bad = ~np.isfinite(boxes).all(axis=1)
        self._refuse(bad, "bounding boxes", "left, top, width and height")
        return [(x, y, x + width, y + height) for x, y, width, height in boxes.tolist()]

    def key_details(self) -> str:
        return hashlib.sha256(repr(self._boxes).encode()).hexdigest() if self.spec.crop else ""

    def decode_file(self, row: int, data: bytes, size: int) -> np.ndarray:
        box = self._boxes[row] if self.spec.crop else None
        return decode_image(data, size, self.spec.resize, box=box)
