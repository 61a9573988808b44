"""STL-10 in its binary version (Coates, Ng and Lee 2011, AISTATS)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.binary import BinarySource
from mtcon_ray.data.sources.download import Part
from mtcon_ray.data.text_file import read_lines
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.published import Stl10Spec
from mtcon_ray.spec.problem import MISSING

TRAIN, UNLABELED, FOLDS = "train_X.bin", "unlabeled_X.bin", "fold_indices.txt"
LABELS = {TRAIN: "train_y.bin", "test_X.bin": "test_y.bin"}


class Stl10Source(BinarySource):
    """Images of 96 x 96 pixels in ten classes, and images without a label."""

    Spec = Stl10Spec

    page = "https://cs.stanford.edu/~acoates/stl10/"
    archive = "stl10_binary.tar.gz"
    archives = (archive,)
    folder_name = "stl10_binary"
    num_items = 13_000
    num_images: ClassVar[Mapping[str, int]] = {TRAIN: 5000, "test_X.bin": 8000, UNLABELED: 100_000}
    class_files: ClassVar[Mapping[str, tuple[str, int]]] = {"class": ("class_names.txt", 10)}
    num_label_bytes = 0
    axes = (2, 1, 0)  # a plane is stored column by column
    # As in torchvision, because the page of STL-10 has none.
    md5: ClassVar[Mapping[str, str]] = {
        archive: "91f7769df0f17e558f3565bffb0c7dfb",
        TRAIN: "918c2871b30a85fa023e0c44e0bee87f",
        "train_y.bin": "5a34089d4802c674881badbb80307741",
        "test_X.bin": "7f263ba9f9e0b06b93213547f721ac82",
        "test_y.bin": "36f9794fa4beb8a2c72628de14fa638e",
        UNLABELED: "5242ba1fed5e4be9e1e742405eb56ca4",
    }
    spec: Stl10Spec

    def used_images(self) -> dict[str, int]:
        used = {name: self.num_images[name] for name in LABELS}
        return used | {UNLABELED: self.spec.unlabeled} if self.spec.unlabeled else used

    def parts(self) -> dict[str, Part]:
        others = [*LABELS.values(), *([] if self.spec.fold is None else [FOLDS])]
        return super().parts() | {name: self.part(name) for name in others}

    def differences(self, table: LabelTable) -> list[str]:
        # The unlabeled images come last, and are as many as the spec says.
        return super().differences(
            replace(table, split=table.split[: len(table) - self.spec.unlabeled])
        )

    def codes(self, name: str, records: np.ndarray) -> np.ndarray:
        if name == UNLABELED:
            return np.full((len(records), 1), MISSING)
        # 1 to 10 are classes.
        codes = self.in_range(
            self.open_records(LABELS[name], len(records), 1), LABELS[name], first=1
        )
        if name == TRAIN and self.spec.fold is not None:
            codes[np.setdiff1d(np.arange(len(codes)), self._fold(self.spec.fold))] = MISSING
        return codes

    def _fold(self, fold: int) -> np.ndarray:
        """Returns the training images of a fold, int64. Raises DataError if the file is broken."""
        path, number = self.path(FOLDS), self.num_images[TRAIN]
        words = "".join(read_lines(path)[fold : fold + 1]).split() or ["nothing"]
        for word in words:
            if not word.isdecimal() or int(word) >= number:
                raise DataError(
                    f"line {fold + 1} of {path} must have numbers from 0 to {number - 1}, got "
                    f"{word}; {self.way_out}"
                )
        return np.array(words, dtype=np.int64)
