"""Data sets of torchvision by name: images with a single class, in files other than pickles."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from mtcon_ray.data.image_files import ImageFiles, ImageFolder
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.files import FilesSource
from mtcon_ray.data.splits import drawn_by_class, published_split
from mtcon_ray.data.table_file import encode_columns
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import Split
from mtcon_ray.spec.data.torchvision_sets import PUBLISHED, Published, TorchvisionDataSpec


class TorchvisionSource(FilesSource):
    """Labels and splits are torchvision's. Image files are decoded as in other kinds of data."""

    Spec = TorchvisionDataSpec

    spec: TorchvisionDataSpec

    @property
    def _known(self) -> Published:
        return PUBLISHED[self.spec.name]

    @cached_property
    def _parts(self) -> dict[Split, Any]:
        """The data sets of the published splits, with the labels of the first task."""
        return {split: self._open(split, self.spec.tasks[0]) for split in self._known.parts}

    def _open(self, split: Split, label: str) -> Any:
        """Returns the data set of a split. Raises DataError if it is missing or unreadable."""
        from torchvision import datasets

        spec, known = self.spec, self._known
        arguments = {**known.parts[split], **spec.options}
        if known.levels is not None:
            arguments[known.levels[0]] = label
        if known.labels is None:
            arguments["loader"] = str  # an item is the path of its image, and its class
        make = getattr(datasets, spec.name)
        if pickles := sorted(Path(spec.folder).glob(f"{spec.name}/processed/*.pt")):
            # torchvision reads these files of its earlier versions first.
            raise DataError(
                f"{spec.name} is not read, because {pickles[0]} is a pickle, which can run code; "
                f"remove the folder {pickles[0].parent}, and set data.download: true if the "
                "published files are missing"
            )
        problem: Exception | None = None
        # Downloads only missing data: some classes would unpack their archive again.
        for download in (False, True) if spec.download else (False,):
            try:
                return make(spec.folder, download=download, **arguments)
            # ValueError, KeyError and TypeError come from files in another format.
            except (RuntimeError, OSError, ValueError, KeyError, TypeError) as error:
                problem = error
        way_out = "unpack it there as torchvision does"
        if not spec.download:
            way_out = "set data.download: true to download it"
        raise DataError(
            f"cannot read {spec.name} of torchvision in data.folder {spec.folder}: "
            f"{' '.join(str(problem).split())}; {way_out}"
        )

    @cached_property
    def files(self) -> ImageFiles:
        if self._known.labels is not None:
            return ArrayImages(Path(self.spec.folder), self._parts)
        return ImageFolder(Path(self.spec.folder))

    @cached_property
    def names(self) -> list[str]:
        if isinstance(self.files, ArrayImages):
            return [f"{split} {i}" for split, part in self._parts.items() for i in range(len(part))]
        root = Path(self.spec.folder)
        names = [
            str(Path(part[i][0]).relative_to(root))
            for part in self._parts.values()
            for i in range(len(part))
        ]
        return self.inside(names, root)

    def read_labels(self) -> LabelTable:
        columns = {}
        for label in (*self.spec.tasks, *self.spec.held_out):
            parts = self._parts
            if label != self.spec.tasks[0]:
                parts = {split: self._open(split, label) for split in self._known.parts}
            columns[label] = np.concatenate([self._cells(part) for part in parts.values()])
        labels, classes = encode_columns(columns)
        split, origin = self._read_split(columns[self.spec.tasks[0]])
        return LabelTable(tuple(self.names), labels, classes, split, split_origin=origin)

    def _cells(self, part: Any) -> np.ndarray:
        """Returns the class names of a data set's images, object [N] of str, "" where unknown."""
        if self._known.labels is not None:
            codes = np.asarray(getattr(part, self._known.labels)).tolist()
        else:
            codes = [part[i][1] for i in range(len(part))]
        names = getattr(part, "classes", None)
        return np.array([_class_name(code, names) for code in codes], dtype=object)

    def _read_split(self, strata: np.ndarray) -> tuple[np.ndarray, str]:
        """Returns each image's split, int8 [N], and the origin of the splits in words.

        Unpublished splits are drawn, with the same shares in each class of `strata`.
        """
        spec, parts = self.spec, self._known.parts
        draw = drawn_by_class(strata, self.names, spec.seed)
        if len(parts) > 1:
            named = {str(given.get("split", split)): split for split, given in parts.items()}
            words = np.repeat([*named], [len(part) for part in self._parts.values()]).tolist()
            what = "the splits of torchvision"
            return published_split(words, named, what, spec.split_fractions, draw)
        origin = f"drawn at random from seed {spec.seed}, the same shares in each class"
        return draw(np.arange(len(strata)), spec.split_fractions), origin

    def key_details(self) -> str:
        return f"{self.spec.name} {sorted(self.spec.options.items())}"


class ArrayImages(ImageFiles):
    """Images of data sets in memory, as PNG files named by their split and their number."""

    def __init__(self, root: Path, parts: Mapping[Split, Any]) -> None:
        super().__init__(root)
        self._of = {str(split): part for split, part in parts.items()}

    def digest(self, names: Sequence[str]) -> str:
        total = hashlib.sha256()
        for split, part in self._of.items():
            pixels = np.ascontiguousarray(np.asarray(part.data))
            total.update(f"{split} {pixels.shape}\0".encode() + pixels.tobytes())
        return total.hexdigest()

    @contextmanager
    def loaded(self, name: str) -> Iterator[bytes]:
        split, _, number = name.partition(" ")
        file = BytesIO()
        self._of[split][int(number)][0].save(file, "PNG", compress_level=0)
        yield file.getvalue()


def _class_name(code: Any, names: Sequence[Any] | None) -> str:
    if code is None:
        return ""
    name = names[code] if names else code
    return str(name[0] if isinstance(name, tuple) else name)  # Imagenette has tuples of synonyms
