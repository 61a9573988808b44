"""Caltech-UCSD Birds 200-2011 (Wah et al. 2011, CNS-TR-2011-001), as it unpacks.

Tasks and recipe are those of MTCon ("Multitask Contrastive Learning", openreview.net, id
UB03wcP8RH): size, shape and primary colour of the bird, with its species held out. The paper does
not say how the many ratings of an image become one label; `labels` has two ways.
"""

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from mtcon_ray.data.decoding import Box, decode_image
from mtcon_ray.data.image_files import ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.base import SOURCES
from mtcon_ray.data.sources.download import DownloadSource, DownloadSpec, Part, mscon_recipe
from mtcon_ray.data.sources.files import FilesSource, FilesSpec
from mtcon_ray.data.splits import SPLITS, stratified_split
from mtcon_ray.data.table_file import encode_columns
from mtcon_ray.data.text_file import read_fields, read_lines
from mtcon_ray.errors import DataError

VAL_SHARE = 0.1  # of the published training split
TOP = "CUB_200_2011/"
ARCHIVE = "CUB_200_2011.tgz"
MD5 = {ARCHIVE: "97eceeb196236b17998738112f37df78"}
# The first four fields of each line; a few lines have further ones.
RATINGS = dict.fromkeys(("image", "attribute", "present", "certainty"), np.int32)
Label = Literal[
    "bill_shape", "wing_color", "upperparts_color", "underparts_color", "breast_pattern",
    "back_color", "tail_shape", "upper_tail_color", "head_pattern", "breast_color", "throat_color",
    "eye_color", "bill_length", "forehead_color", "under_tail_color", "nape_color", "belly_color",
    "wing_shape", "size", "shape", "back_pattern", "tail_pattern", "belly_pattern",
    "primary_color", "leg_color", "bill_color", "crown_color", "wing_pattern", "species",
]  # fmt: skip


@SOURCES.register("cub200")
class CubSource(FilesSource, DownloadSource):
    """The species, and from each group of attributes the one that describes the bird best."""

    class Spec(FilesSpec, DownloadSpec):
        """CUB-200-2011; labels: the 28 groups of attributes, and the species."""

        kind: Literal["cub200"] = "cub200"
        tasks: tuple[Label, ...] = Field(
            ("size", "shape", "primary_color"), min_length=1, description="labels to train on"
        )
        held_out: tuple[Label, ...] = Field(
            ("species",), description="labels never trained on, probed once at the end"
        )
        labels: Literal["image", "species"] = Field(
            "image",
            description="image: the attribute seen with the highest certainty in each image; "
            "species: the one seen in most images of the species",
        )
        crop: bool = Field(
            False,
            description="cut each image to the bird's bounding box first; an exported model then "
            "needs such images too",
        )

    page = "https://www.vision.caltech.edu/datasets/cub_200_2011/"
    num_items = 11_788
    num_split = (5_394, 600, 5_794)
    num_classes: ClassVar[Mapping[str, int]] = {"species": 200}
    recipe: ClassVar[Mapping[str, Any]] = mscon_recipe(224, "resnet50", head_dim=64)
    spec: Spec

    def parts(self) -> dict[str, Part]:
        files = {
            "images": "images",
            "paths": "images.txt",
            "species": "classes.txt",
            "species of images": "image_class_labels.txt",
            "splits": "train_test_split.txt",
            "attributes of images": "attributes/image_attribute_labels.txt",
            "attributes of species": "attributes/class_attribute_labels_continuous.txt",
        }
        if self.spec.crop:
            files["bounding boxes"] = "bounding_boxes.txt"
        places: dict[str, tuple[str, ...]] = {w: (TOP + file, file) for w, file in files.items()}
        # In the archive it is beside the folder; copies of the data set often have it within.
        attributes = ("attributes.txt", f"{TOP}attributes/attributes.txt")
        places["names of attributes"] = (
            *attributes,
            "attributes/attributes.txt",
            "../attributes.txt",
        )
        found = {what: Part(where, ARCHIVE, self.page) for what, where in places.items()}
        return found | self.archive_at_root(ARCHIVE, MD5)

    @cached_property
    def files(self) -> ImageFolder:
        return self.folder("images")

    @cached_property
    def _paths(self) -> dict[int, str]:
        return self._by_id("paths")

    @cached_property
    def names(self) -> list[str]:
        names = list(self._paths.values())
        self.refuse_outside(names, self.path("paths"))
        return names

    def _by_id(self, what: str) -> dict[int, str]:
        """Returns a file of an id and a text in each line. Raises DataError if a line differs."""
        path, found = self.path(what), {}
        for number, line in enumerate(read_lines(path), 1):
            key, _, text = line.strip().partition(" ")
            if not key.isdigit() or not text:
                raise DataError(f"line {number} of {path} must be an id and a text, got {line!r}")
            found[int(key)] = text.strip()
        return found

    def _of_images(self, what: str) -> list[str]:
        """Returns a text for each image. Raises DataError if an image has none."""
        found = self._by_id(what)
        absent = [image for image in self._paths if image not in found]
        if absent:
            raise DataError(
                f"{self.path(what)} must have a line for each image, got none for {absent[0]}"
            )
        return [found[image] for image in self._paths]

    def _numbers(self, what: str, rule: str, allowed: Callable[[np.ndarray], bool]) -> np.ndarray:
        """Returns the numbers of each image's line, float64 [N, any].

        Raises DataError with the `rule` for a line that is not `allowed`.
        """
        found = []
        for image, text in zip(self._paths, self._of_images(what), strict=True):
            try:
                numbers = np.array(text.split(), dtype=float)
            except ValueError:
                numbers = np.empty(0)
            if not allowed(numbers):
                raise DataError(
                    f"{self.path(what)} must have {rule} for each image, got {text!r} for {image}"
                )
            found.append(numbers)
        return np.array(found)

    def read_labels(self) -> LabelTable:
        labels, classes = encode_columns({c: self._values(c) for c in self.columns})
        return LabelTable(
            names=tuple(self.names), labels=labels, classes=classes, split=self._read_split()
        )

    def _read_split(self) -> np.ndarray:
        """Returns each image's split, int8 [N]: the published one, with a part of train as val."""
        is_train = self._numbers("splits", "0 or 1", lambda n: n.tolist() in ([0], [1]))[:, 0]
        split = np.full(len(is_train), SPLITS.index("test"), dtype=np.int8)
        train = np.flatnonzero(is_train)
        # drawn_split's first two splits are train and val.
        split[train] = stratified_split(
            self._species[train],
            np.array(self.names, dtype=object)[train],
            (1 - VAL_SHARE, VAL_SHARE),
            self.spec.seed,
        )
        return split

    @cached_property
    def _species(self) -> np.ndarray:
        """The species of each image, int64 [N], from 0."""
        ids = [*self._by_id("species")]
        rule = f"an id of {self.path('species').name}"
        found = self._numbers("species of images", rule, lambda n: len(n) == 1 and n[0] in ids)
        return found[:, 0].astype(np.int64) - 1

    @cached_property
    def _attributes(self) -> list[tuple[str, str]]:
        """The group and the name of each attribute, such as (size, small_(5_-_9_in))."""
        texts = self._by_id("names of attributes")
        pairs = [texts[key].partition("::")[::2] for key in sorted(texts)]
        return [(group.removeprefix("has_"), name) for group, name in pairs]

    @cached_property
    def _shares(self) -> np.ndarray:
        """The share of each species' images with each attribute, percent, float64 [200, 312]."""
        path = self.path("attributes of species")
        try:
            shares = np.array([line.split() for line in read_lines(path)], dtype=float)
        except ValueError as error:
            raise DataError(f"{path} must hold numbers, got: {error}") from None
        wanted = (int(self._species.max()) + 1, len(self._attributes))
        if shares.shape[0] < wanted[0] or shares.shape[1:] != wanted[1:]:
            raise DataError(
                f"{path} must have a line for each species and a number for each attribute, at "
                f"least {wanted}, got {shares.shape}"
            )
        return shares

    @cached_property
    def _certainties(self) -> np.ndarray:
        """The certainty, 1 to 4, with which an attribute was seen in an image, uint8 [N, 312].

        0 where it was not seen.
        """
        path = self.path("attributes of images")
        rated = read_fields(path, RATINGS, more=True)
        image, attribute = rated["image"], rated["attribute"]
        most = len(self._attributes)
        strange = np.flatnonzero((image < 0) | (attribute < 1) | (attribute > most))
        if len(strange):
            line = int(strange[0])
            raise DataError(
                f"{path} must begin each line with the ids of an image and of an attribute up to "
                f"{most}, got {image[line]} and {attribute[line]} in line {line + 1}"
            )
        row_of = np.full(max(image.max(), *self._paths) + 1, -1)
        row_of[list(self._paths)] = np.arange(len(self._paths))
        found = np.zeros((len(self._paths), len(self._attributes)), dtype=np.uint8)
        seen = (rated["present"] == 1) & (row_of[image] >= 0)
        found[row_of[image[seen]], attribute[seen] - 1] = rated["certainty"][seen]
        return found

    def _values(self, label: str) -> np.ndarray:
        """Returns each image's value of a label, object [N] of str, "" where unknown."""
        if label == "species":
            named = self._by_id("species")
            return np.array([named[species + 1] for species in self._species], dtype=object)
        group = [i for i, (of, _) in enumerate(self._attributes) if of == label]
        if not group:
            raise DataError(
                f"{self.path('names of attributes')} must have attributes has_{label}::..., "
                "got none"
            )
        score = self._shares[self._species][:, group]
        if self.spec.labels == "image":
            certainty = self._certainties[:, group].astype(float)
            # Equal certainties are decided by the species, which adds at most 100 to the score.
            score = np.where(certainty > 0, 1000 * certainty + score, 0)
        best = np.where(score.max(axis=1) > 0, score.argmax(axis=1), -1)
        # The last entry is that of index -1.
        names = np.array([*(self._attributes[i][1] for i in group), ""], dtype=object)
        return np.asarray(names[best])

    @cached_property
    def _boxes(self) -> list[Box]:
        rule = "left, top, width and height"
        found = self._numbers(
            "bounding boxes", rule, lambda n: n.shape == (4,) and bool(np.isfinite(n).all())
        )
        return [(x, y, x + width, y + height) for x, y, width, height in found.tolist()]

    def key_details(self) -> str:
        if not self.spec.crop:
            return ""
        return hashlib.sha256(repr(self._boxes).encode()).hexdigest()

    def decode_file(self, row: int, data: bytes, size: int) -> np.ndarray:
        box = self._boxes[row] if self.spec.crop else None
        return decode_image(data, size, self.spec.resize, box=box)
