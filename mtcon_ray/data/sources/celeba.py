"""CelebA, faces with 40 attributes (Liu et al. 2015, arXiv:1411.7766), as it unpacks.

Tasks and recipe are those of MultiSupCon (Zaigrajew and Zieba), but for two fields. Its TResNet-M
needs the package timm, so the encoder is ResNet-50. The paper has no batch size; 128 is its code's.
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
from mtcon_ray.data.splits import LEFT_OUT, SPLITS
from mtcon_ray.data.text_file import read_fields, read_lines
from mtcon_ray.errors import DataError, nearest
from mtcon_ray.metrics import Kind

SET: Final = "attributes"
Label = Literal[
    "attributes", "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald",
    "Bangs", "Big_Lips", "Big_Nose", "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair",
    "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses", "Goatee", "Gray_Hair", "Heavy_Makeup",
    "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache", "Narrow_Eyes", "No_Beard",
    "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks", "Sideburns",
    "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick",
    "Wearing_Necklace", "Wearing_Necktie", "Young",
]  # fmt: skip
ARCHIVE = "img_align_celeba.zip"
MD5 = {
    ARCHIVE: "00d2c5bc6d35e252742224ab0c1e8fcb",
    "list_attr_celeba.txt": "75e246fa4810816ffd6ee81facbd244c",
    "list_eval_partition.txt": "d32c9cbf5e040fd4025c592c306e6668",
}


@SOURCES.register("celeba")
class CelebaSource(FilesSource, DownloadSource):
    """The 40 attributes as one label set, and each as a column of the classes no and yes."""

    class Spec(FilesSpec, DownloadSpec):
        """CelebA's aligned faces; labels: attributes (the set of all 40), and each attribute."""

        kind: Literal["celeba"] = "celeba"
        tasks: tuple[Label, ...] = Field((SET,), min_length=1, description="labels to train on")
        held_out: tuple[Label, ...] = Field(
            (), description="labels never trained on, probed once at the end"
        )

        def kind_of(self, name: str) -> Kind:
            return "set" if name == SET else "classes"

    page = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
    num_items = 202_599
    num_split = (162_770, 19_867, 19_962)
    recipe: ClassVar[Mapping[str, Any]] = {
        "views.size": 64,
        "model.encoder": {"name": "resnet50"},
        "model.head_dim": 128,
        "method": {"name": "multisupcon", "threshold": 0.3},
        "train.epochs": 80,
        "train.batch_size": 128,
        "train.lr": 0.5,
    }
    spec: Spec

    def parts(self) -> dict[str, Part]:
        # As the archives unpack, as the official folders are, and as Kaggle packs them.
        folder, labels, splits = "img_align_celeba", "list_attr_celeba", "list_eval_partition"
        places = {
            "images": (f"{folder}/{folder}", folder, f"Img/{folder}"),
            "attributes": (f"{labels}.txt", f"Anno/{labels}.txt", f"{labels}.csv"),
            "splits": (f"{splits}.txt", f"Eval/{splits}.txt", f"{splits}.csv"),
        }
        archives = {"images": ARCHIVE}
        found = {
            what: Part(where, archives.get(what, where[0]), self.page, MD5)
            for what, where in places.items()
        }
        return found | self.archive_at_root(ARCHIVE, MD5, folder="Img/")

    @cached_property
    def files(self) -> ImageFolder:
        return self.folder("images")

    @cached_property
    def names(self) -> list[str]:
        names = list(self._table[0])
        self.refuse_outside(names, self.path("attributes"))
        return names

    @cached_property
    def _table(self) -> tuple[np.ndarray, tuple[str, ...], np.ndarray]:
        """The images' names, object [N], the L attributes' names, and their bits, uint8 [N, L]."""
        path = self.path("attributes")
        head = [*read_lines(path, 2), "", ""]
        # Kaggle's packaging is a CSV. Elsewhere line 1 is the number of images.
        is_csv = path.suffix == ".csv"
        if not is_csv and not head[0].strip().isdigit():
            raise DataError(f"line 1 of {path} must be the number of images, got {head[0]!r:.80}")
        attributes = tuple(head[0].strip().split(",")[1:] if is_csv else head[1].split())
        fields = {"image": str} | dict.fromkeys(attributes, np.int8)
        skip, separator = (1, ",") if is_csv else (2, r"\s+")
        columns = read_fields(path, fields, separator=separator, skip=skip, more=False)
        images = columns.pop("image")
        if not is_csv and head[0].strip() != str(len(images)):
            raise DataError(
                f"{path} must have as many images as its first line says, got {len(images)} and "
                f"{head[0].strip()!r}; fetch the whole file"
            )
        values = np.stack(list(columns.values()), axis=1)
        if not np.isin(values, (-1, 0, 1)).all():
            raise DataError(
                f"{path} must hold 1, and -1 or 0, got {values.min()} to {values.max()}"
            )
        return images, attributes, (values == 1).astype(np.uint8)

    def read_labels(self) -> LabelTable:
        _, attributes, bits = self._table
        labels: dict[str, np.ndarray] = {}
        classes: dict[str, tuple[str, ...]] = {}
        for column in self.columns:
            if column == SET:
                continue
            if column not in attributes:
                raise DataError(
                    f"{self.path('attributes')} must have the attribute {column!r}"
                    f"{nearest(column, attributes)}"
                )
            labels[column] = bits[:, attributes.index(column)].astype(np.int64)
            classes[column] = ("no", "yes")
        return LabelTable(
            names=tuple(self.names),
            labels=labels,
            classes=classes,
            split=self._read_split(),
            multi_hot={SET: bits} if SET in self.columns else {},
            multi_hot_names={SET: attributes} if SET in self.columns else {},
        )

    def _read_split(self) -> np.ndarray:
        """Returns each image's split, int8 [N]."""
        path = self.path("splits")
        is_csv = path.suffix == ".csv"
        columns = read_fields(
            path,
            {"image": str, "split": np.int8},
            separator="," if is_csv else r"\s+",
            skip=int(is_csv),
            more=False,
        )
        # The codes are the indices of SPLITS.
        split_of = dict(zip(columns["image"], columns["split"], strict=True))
        split = np.array([split_of.get(name, LEFT_OUT) for name in self.names], dtype=np.int8)
        bad = np.flatnonzero((split < 0) | (split >= len(SPLITS)))
        if len(bad):
            raise DataError(
                f"{path} must have 0, 1 or 2 for each image, got "
                f"{split_of.get(self.names[bad[0]])} for {self.names[bad[0]]}"
            )
        return split
