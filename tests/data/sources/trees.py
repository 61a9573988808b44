"""Small trees in the formats of the published data sets, as their archives unpack."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mtcon_ray.data.sources import SOURCES
from tests.data.sources.downloads import save_image, write_text

# Writes the tree of a kind of published data below a folder, and returns its root.
Made = Callable[..., Path]

# CelebA: attributes, their bits for each image, and the splits.
FACES = ("5_o_Clock_Shadow", "Bald", "Smiling", "Young")
FACE_BITS = ((0, 1, 1, 1), (1, 0, 0, 1), (0, 0, 0, 0), (1, 1, 1, 1), (0, 1, 0, 1), (1, 0, 1, 0))
FACE_SPLITS = (0, 0, 0, 1, 2, 2)
SPECIES = ("001.Black_footed_Albatross", "002.Laysan_Albatross")
ATTRIBUTES = (
    "has_bill_shape::dagger", "has_size::large_(16_-_32_in)", "has_size::small_(5_-_9_in)",
    "has_size::medium_(9_-_16_in)", "has_shape::gull-like", "has_shape::duck-like",
    "has_primary_color::blue", "has_primary_color::black",
)  # fmt: skip
# Image, attribute, present, certainty: of images 1 to 4. Image 5 has no rating.
RATINGS = [
    "1 2 1 3 5.5", "1 3 1 4 5.5", "1 4 0 4 5.5", "1 5 1 4 1.2", "1 6 1 4 1.2", "1 7 0 1 9",
    "2 2 1 3 5.5", "2 3 1 3 5.5", "2 5 0 4 1.2", "2 6 1 1 0 1.2 8", "2 8 1 4 3",
    "3 2 1 3 5.5", "3 3 1 3 5.5", "3 4 0 4 1 7 1.2", "3 5 1 2 1.1", "3 7 1 4 3",
    "4 4 1 2 5.5", "4 5 1 2 1.1", "4 8 1 4 3 ",
]  # fmt: skip
MEDIC_HEADER = (
    "image_id\tevent_name\timage_path\tdamage_severity\tinformative\thumanitarian\tdisaster_types"
)
DISASTERS = {
    "train": [
        "1\tflood's\tdata/aidr_info/a/1.jpg\tsevere\tinformative\tnot_humanitarian\tflood",
        '2\t"quoted"\tdata/crisismmd/NA.jpg\tmild\tinformative\t\tfire',
        "3\t\tdata/crisismmd/3.png\tlittle_or_none\tnot_informative\tnot_humanitarian\tnot_disaster",
    ],
    "dev": ["4\tx\tdata/crisismmd/4.jpg\tmild\tinformative\tnot_humanitarian\tflood"],
    "test": ["5\tx\tdata/crisismmd/5.jpg\t\tnot_informative\tnot_humanitarian\tfire"],
}
LAND = ("airplane", "bare-soil", "buildings", "cars")
ZAPPOS_HEADER = "CID,Category,SubCategory,HeelHeight,Insole,Closure,Gender,Material,ToeStyle"
# Folder, file id, and the cells from HeelHeight on.
SHOES = [
    ("Shoes/Oxfords/Bostonian", "100627.72", ",,Lace up,Men,Leather,"),
    ("Shoes/Oxfords/Bostonian", "100627.9", ",,Lace up;Zipper,Men,Leather,"),
    ("Shoes/Heels/Kate N.Y.", "7.1", "3in - 3 3/4in,,Buckle,Women;Girls,Leather;Suede,Open Toe"),
    ("Shoes/Heels/Kate N.Y%2E", "7.2", "3in - 3 3/4in,,,Women,,Open Toe"),
    ("Shoes/Flats/Kate N.Y", "7.3", "Flat,,Slip-On,Girls,Suede,"),
    ("Boots/Ankle/O'Brien & Söhne", "8.0", ",,Pull-on;Slip-On,Boys,,"),
    ("Boots/Ankle/O'Brien & Söhne", "8.1", ",,Zipper,Boys,,"),
    ("Sandals/Flat/Teva", "9.1", ",,Hook and Loop,Men,,"),
    ("Sandals/Flat/Teva", "9.2", ",,hook & loop ;,Men,,"),
    ("Slippers/Slipper Flats/Teva", "10.1", ",,Pull-on,Women,,"),
]
# The classes in alphabetical order.
TEN = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
FINE = [f"fine_{code:02d}" for code in range(100)]
COARSE = [f"coarse_{code:02d}" for code in range(20)]
CIFAR10, CIFAR100, STL10 = "cifar-10-batches-bin", "cifar-100-binary", "stl10_binary"
BATCHES = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
# The colour of the corner at the top right in `pixels`.
CORNER = (250, 120, 10)


def celeba(root: Path, end: str = "\n", folders: tuple[str, str, str] = ("", "", "")) -> Path:
    """Writes CelebA; the header ends in a space, and values are two columns wide."""
    anno, evaluation, img = folders
    signs = [" ".join(f"{2 * bit - 1:2}" for bit in bits) for bits in FACE_BITS]
    rows = [f"{i:06}.jpg {row}" for i, row in enumerate(signs, 1)]
    write_text(root / anno / "list_attr_celeba.txt", "6", " ".join(FACES) + " ", *rows, end=end)
    splits = [f"{i:06}.jpg {split}" for i, split in enumerate(FACE_SPLITS, 1)]
    write_text(root / evaluation / "list_eval_partition.txt", *splits, end=end)
    for i in range(1, 7):
        save_image(root / img / "img_align_celeba" / f"{i:06}.jpg", 30 * i)
    return root


def kaggle(root: Path) -> Path:
    """Writes CelebA in the packaging of Kaggle."""
    celeba(root, folders=("", "", "img_align_celeba"))
    for name, skip, header in (
        ("list_attr_celeba", 2, ",".join(("image_id", *FACES))),
        ("list_eval_partition", 0, "image_id,partition"),
    ):
        path = root / f"{name}.txt"
        rows = [",".join(line.split()) for line in path.read_text().splitlines()[skip:]]
        write_text(root / f"{name}.csv", header, *(rows if skip else reversed(rows)))
        path.unlink()
    return root


def cub200(root: Path, end: str = "\n", num_items: int = 40) -> Path:
    """Writes CUB; odd images are of the first species, and the second half is for test."""
    top, items = root / "CUB_200_2011", range(1, num_items + 1)
    of = [SPECIES[1 - i % 2] for i in items]
    texts = {
        "images.txt": [f"{i} {s}/{s[4:]}_{i:04}.jpg" for i, s in zip(items, of, strict=True)],
        "image_class_labels.txt": [f"{i} {int(s[:3])}" for i, s in zip(items, of, strict=True)],
        "train_test_split.txt": [f"{i} {int(i <= num_items // 2)}" for i in items],
        "classes.txt": [f"{int(s[:3])} {s}" for s in SPECIES],
        "attributes/image_attribute_labels.txt": RATINGS,
        "attributes/class_attribute_labels_continuous.txt": [
            "0.0 40.0 50.0 10.0 90.0 2.5 0.0 100.0", "0.0 30.0 30.0 10.0 50.0 60.0 99.0 0.0",
        ],
    }  # fmt: skip
    for name, lines in texts.items():
        write_text(top / name, *lines, end=end)
    write_text(root / "attributes.txt", *(f"{i} {a}" for i, a in enumerate(ATTRIBUTES, 1)), end=end)
    for i, species in zip(items, of, strict=True):
        save_image(top / "images" / species / f"{species[4:]}_{i:04}.jpg", 3 * i, (40, 20))
    return root


def medic(root: Path, end: str = "\n") -> Path:
    """Writes MEDIC."""
    for level, (split, rows) in enumerate(DISASTERS.items(), 1):
        write_text(root / f"MEDIC_{split}.tsv", MEDIC_HEADER, *rows, end=end)
        for row in rows:
            save_image(root / row.split("\t")[2], 50 * level)
    return root


def ucmerced(root: Path, end: str = "\r\n", labels_folder: str = "") -> Path:
    """Writes 20 images of each of three uses as TIFF; image i has the bits of the number i."""
    names = [f"{use}{i:02}" for use in ("agricultural", "airplane", "river") for i in range(20)]
    rows = []
    for i, name in enumerate(names):
        rows.append("\t".join([name, *(str(i % 16 >> bit & 1) for bit in range(4))]))
        path = root / "UCMerced_LandUse" / "Images" / name[:-2] / f"{name}.tif"
        save_image(path, 4 * i, (16, 16))
    header = "\t".join(("IMAGE\\LABEL", *LAND))
    write_text(root / labels_folder / "LandUse_Multilabeled.txt", header, *rows, end=end)
    return root


def zappos50k(root: Path, end: str = "\n") -> Path:
    """Writes Zappos50K; the image of row i has the grey level 20 i."""
    lines = [ZAPPOS_HEADER]
    for row, (folder, name, cells) in enumerate(SHOES):
        category, subcategory, _ = folder.split("/")
        lines.append(f"{name.replace('.', '-')},{category},{subcategory},{cells}")
        save_image(root / "ut-zap50k-images" / folder / f"{name}.jpg", 20 * row)
    (root / "ut-zap50k-images" / "Thumbs.db").write_bytes(b"no image")
    write_text(root / "ut-zap50k-data" / "meta-data.csv", *lines, end=end)
    return root


MAKERS: tuple[Made, ...] = (celeba, cub200, medic, ucmerced, zappos50k)
PHOTOGRAPHS = {make.__name__: make for make in MAKERS}


def pixels(side: int, level: int) -> np.ndarray:
    """Returns an image of one grey level with CORNER at the top right, uint8 [side, side, 3]."""
    found = np.full((side, side, 3), level, dtype=np.uint8)
    found[0, -1] = CORNER
    return found


def picture(side: int, level: int, by_columns: bool) -> bytes:
    """Returns the planes of `pixels`."""
    return pixels(side, level).transpose((2, 1, 0) if by_columns else (2, 0, 1)).tobytes()


def cifar10(root: Path, monkeypatch: pytest.MonkeyPatch, per_file: int = 20) -> Path:
    """Writes CIFAR-10; the images of file f have the classes 0, 1, ... and the grey level 10 f."""
    monkeypatch.setattr(SOURCES["cifar10"], "num_images", dict.fromkeys(BATCHES, per_file))
    write_text(root / CIFAR10 / "batches.meta.txt", *TEN, "")  # the official last line is empty
    for file, name in enumerate(BATCHES):
        records = [bytes([i % 10]) + picture(32, 10 * file, False) for i in range(per_file)]
        (root / CIFAR10 / name).write_bytes(b"".join(records))
    return root


def cifar100(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes CIFAR-100 with 10 training and 2 test images of each fine class."""
    sizes = {"train.bin": 1000, "test.bin": 200}
    monkeypatch.setattr(SOURCES["cifar100"], "num_images", sizes)
    write_text(root / CIFAR100 / "fine_label_names.txt", *FINE)
    write_text(root / CIFAR100 / "coarse_label_names.txt", *COARSE)
    for name, number in sizes.items():
        records = [bytes([i % 100 // 5, i % 100]) + picture(32, 7, False) for i in range(number)]
        (root / CIFAR100 / name).write_bytes(b"".join(records))
    return root


def stl10(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes STL-10 with 40 training, 20 test and 6 unlabeled images, of levels 1, 2 and 3.

    Image i of the first two has the label 1 + i % 10.
    """
    sizes = {"train_X.bin": 40, "test_X.bin": 20, "unlabeled_X.bin": 6}
    monkeypatch.setattr(SOURCES["stl10"], "num_images", sizes)
    write_text(root / STL10 / "class_names.txt", *TEN)
    for level, (name, number) in enumerate(sizes.items(), 1):
        (root / STL10 / name).write_bytes(picture(96, level, True) * number)
        if level < 3:
            labels = bytes(1 + i % 10 for i in range(number))
            (root / STL10 / name.replace("X", "y")).write_bytes(labels)
    return root


BINARY: dict[str, Made] = {"cifar10": cifar10, "cifar100": cifar100, "stl10": stl10}


def make(kind: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes the tree of a kind of published data; returns its root."""
    return BINARY[kind](root, monkeypatch) if kind in BINARY else PHOTOGRAPHS[kind](root)
