"""Sections of the published data sets."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from mtcon_ray.base.registry import Inside, LocalPath
from mtcon_ray.spec.data.base import SOURCES, DataSpec, FilesSpec, HeldOut, Label

Tasks = Annotated[tuple[Label, ...], Field(min_length=1, description="labels to train on")]


class DownloadSpec(DataSpec):
    """Spec fields common to all kinds of data from a download."""

    root: LocalPath = Field(description="folder into which the data set's archives were unpacked")


class PhotosSpec(FilesSpec, DownloadSpec):
    """Spec fields common to all published data sets with images as files."""


class BinarySpec(DownloadSpec):
    """Spec fields common to all kinds of data in binary files."""

    native_size: ClassVar[int]
    val_share: Inside = Field(0.1, description="share of each class drawn for val, by seed")


@SOURCES.declare("cifar10", "mtcon_ray.data.sources.binary:Cifar10Source")
class Cifar10Spec(BinarySpec):
    """CIFAR-10, the binary version. The only label is class."""

    native_size = 32
    tasks: Tasks[Literal["class"]] = ("class",)


CifarLabel = Literal["coarse", "fine"]


@SOURCES.declare("cifar100", "mtcon_ray.data.sources.binary:Cifar100Source")
class Cifar100Spec(BinarySpec):
    """CIFAR-100, the binary version. Labels: fine, and coarse, which follows from fine."""

    native_size = 32
    tasks: Tasks[CifarLabel] = ("fine",)
    held_out: HeldOut[CifarLabel] = ("coarse",)


@SOURCES.declare("stl10", "mtcon_ray.data.sources.binary:Stl10Source")
class Stl10Spec(BinarySpec):
    """STL-10, the binary version. The only label is class."""

    native_size = 96
    tasks: Tasks[Literal["class"]] = ("class",)
    unlabeled: int = Field(0, ge=0, le=100_000, description="the first unlabeled images, in train")


CelebaLabel = Literal[
    "attributes", "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald",
    "Bangs", "Big_Lips", "Big_Nose", "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair",
    "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses", "Goatee", "Gray_Hair", "Heavy_Makeup",
    "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache", "Narrow_Eyes", "No_Beard",
    "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks", "Sideburns",
    "Smiling", "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick",
    "Wearing_Necklace", "Wearing_Necktie", "Young",
]  # fmt: skip


@SOURCES.declare("celeba", "mtcon_ray.data.sources.celeba:CelebaSource")
class CelebaSpec(PhotosSpec):
    """CelebA's aligned faces. Labels: attributes (the set of all 40), and each attribute."""

    tasks: Tasks[CelebaLabel] = ("attributes",)
    held_out: HeldOut[CelebaLabel] = ()
    sets = ("attributes",)


CubLabel = Literal[
    "bill_shape", "wing_color", "upperparts_color", "underparts_color", "breast_pattern",
    "back_color", "tail_shape", "upper_tail_color", "head_pattern", "breast_color", "throat_color",
    "eye_color", "bill_length", "forehead_color", "under_tail_color", "nape_color", "belly_color",
    "wing_shape", "size", "shape", "back_pattern", "tail_pattern", "belly_pattern",
    "primary_color", "leg_color", "bill_color", "crown_color", "wing_pattern", "species",
]  # fmt: skip


@SOURCES.declare("cub200", "mtcon_ray.data.sources.cub200:CubSource")
class CubSpec(PhotosSpec):
    """CUB-200-2011. Labels: the 28 groups of attributes, and the species."""

    tasks: Tasks[CubLabel] = ("size", "shape", "primary_color")
    held_out: HeldOut[CubLabel] = ("species",)
    labels: Literal["image", "species"] = Field(
        "image",
        description="image: the attribute seen with the highest certainty in each image, or "
        "species: the attribute seen in most images of the species",
    )


MedicLabel = Literal["damage_severity", "informative", "humanitarian", "disaster_types"]


@SOURCES.declare("medic", "mtcon_ray.data.sources.medic:MedicSource")
class MedicSpec(PhotosSpec):
    """MEDIC. To hold a label out, name it in held_out and leave it out of tasks.

    Truncated JPEGs are used, with grey for the missing part.
    """

    tasks: Tasks[MedicLabel] = ("damage_severity", "informative", "humanitarian", "disaster_types")
    held_out: HeldOut[MedicLabel] = ()


UcMercedLabel = Literal["labels", "land_use"]


@SOURCES.declare("ucmerced", "mtcon_ray.data.sources.ucmerced:UcMercedSource")
class UcMercedSpec(PhotosSpec):
    """UC Merced, split 70/10/20. Labels: labels (a set of 17), land_use (21 classes)."""

    tasks: Tasks[UcMercedLabel] = ("labels",)
    held_out: HeldOut[UcMercedLabel] = ("land_use",)
    sets = ("labels",)


ZapposLabel = Literal[
    "category", "subcategory", "heel_height", "insole", "closure", "gender", "material",
    "toe_style", "brand",
]  # fmt: skip


@SOURCES.declare("zappos50k", "mtcon_ray.data.sources.zappos50k:ZapposSource")
class ZapposSpec(PhotosSpec):
    """UT Zappos50K. A cell with several values is a label only if a single value is listed."""

    tasks: Tasks[ZapposLabel] = ("category", "closure", "gender")
    held_out: HeldOut[ZapposLabel] = ("brand",)
    held_out_top_k: int | None = Field(
        20, ge=2, description="keep the k most frequent held-out classes (others become missing)"
    )
    closures: Literal["mscon", "ccn"] = Field(
        "mscon", description="classes of closure: MSCon's list (with Buckle) or CCN's (with Zipper)"
    )
    split: Literal["random", "csn"] = Field(
        "random",
        description="random: 70/10/20 of each category, by seed, or csn: the images in CSN's "
        "lists of triplets",
    )
