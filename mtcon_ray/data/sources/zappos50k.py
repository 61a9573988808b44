"""UT Zappos50K, a catalogue of shoes (Yu and Grauman 2014, CVPR), as it unpacks.

The tasks follow MSCon (Mu, Guttag and Makar 2023, arXiv:2307.02712).
"""

import re
from functools import cached_property
from itertools import product
from urllib.parse import unquote

import numpy as np

from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.download import Part, PhotosSource
from mtcon_ray.data.splits import LEFT_OUT, SPLITS
from mtcon_ray.data.table_file import TableFile, read_table_file
from mtcon_ray.data.text_file import read_fields, read_lines
from mtcon_ray.spec.data.published import ZapposSpec

IMAGES = "ut-zap50k-images"
# CSN (Veit, Belongie and Karaletsos 2017, arXiv:1603.07810) has the same list as MSCon.
CLOSURES = {
    "mscon": ("Buckle", "Hook and Loop", "Lace up", "Pull-on", "Slip-On"),
    "ccn": ("Hook and Loop", "Lace up", "Pull-on", "Slip-On", "Zipper"),
}
GENDERS = ("Boys", "Girls", "Men", "Women")
# The columns of meta-data.csv by label. The brand is a folder instead.
COLUMNS = {
    "category": "Category", "subcategory": "SubCategory", "heel_height": "HeelHeight",
    "insole": "Insole", "closure": "Closure", "gender": "Gender", "material": "Material",
    "toe_style": "ToeStyle",
}  # fmt: skip
CSN_PAGE = "https://github.com/andreasveit/conditional-similarity-networks"
CONDITIONS = ("class", "closure", "gender", "heel")  # CSN's lists of triplets
TRIPLET = dict.fromkeys(("anchor", "far", "near"), np.int64)


class ZapposSource(PhotosSource):
    """The labels of meta-data.csv, and the brand, which only the images' folders name."""

    page = "https://vision.cs.utexas.edu/projects/finegrained/utzap50k/"
    num_items = 50_025
    spec: ZapposSpec

    def parts(self) -> dict[str, Part]:
        labels = ("ut-zap50k-data/meta-data.csv", "meta-data.csv")
        folders, csn = (IMAGES, f"{IMAGES}-square"), f"csn_zappos_triplets.zip of {CSN_PAGE}"
        found = {
            "images": Part(folders, f"{IMAGES}.zip of {self.page}"),
            "labels": Part(labels, f"ut-zap50k-data.zip of {self.page}"),
        }
        if self.spec.split == "csn":
            files = ("filenames.json", "tripletlists/filenames.json")
            found["triplets"] = Part(("tripletlists",), csn)
            found["file names of triplets"] = Part(files, csn)
        return found

    @cached_property
    def _csv(self) -> TableFile:
        return read_table_file(self.path("labels"))

    @cached_property
    def names(self) -> list[str]:
        # Found by their ids: a brand's folder ending in a dot has other names on some systems.
        found = {_cid(name): name for name in sorted(self.files.names(), reverse=True)}
        ids = self._csv.column("CID").cells
        names = [found.get(cid, f"{cid.replace('-', '.')}.jpg") for cid in ids]
        return self.inside(names, self._csv.path)

    def cells(self, label: str) -> np.ndarray:
        if label == "brand":
            return np.array([_brand(name) for name in self.names], dtype=object)
        listed = {"closure": CLOSURES[self.spec.closures], "gender": GENDERS}.get(label)
        known = {_class_key(name): name for name in listed or ()}

        def single(cell: str) -> str:
            found = {v.strip() for v in cell.split(";")} - {""}
            if listed:
                found = {known[key] for key in map(_class_key, found) if key in known}
            return min(found) if len(found) == 1 else ""

        return self._csv.column(COLUMNS[label]).mapped(single, object)

    def read_split(self) -> np.ndarray:
        cids = self._csv.column("CID").cells
        if self.spec.split == "random":
            return self.drawn(self._csv.column(COLUMNS["category"]).cells, cids)
        # The split implied by CSN's triplets. Images in no list are in no split.
        row_of = {cid: row for row, cid in enumerate(cids)}
        lines = read_lines(self.path("file names of triplets"))
        row_of_line = np.array([row_of.get(_cid(line), -1) for line in lines])
        split = np.full(len(cids) + 1, LEFT_OUT, dtype=np.int8)  # the last entry is for row -1
        # An image of two splits counts as test before val, and as val before train.
        for (code, name), condition in product(enumerate(SPLITS), CONDITIONS):
            path = self.path("triplets") / f"{condition}_tripletlist_{name}.txt"
            for images in read_fields(path, TRIPLET, more=False).values():
                split[row_of_line[images]] = code
        return split[:-1]

    def doubts(self, table: LabelTable) -> list[str]:
        unused = int((table.split == LEFT_OUT).sum())
        return [f"{unused} images are in none of CSN's lists and in no split"] if unused else []


def _class_key(value: str) -> str:
    """Returns a value without letter case and punctuation: `Slip-On` equals `Slip On`."""
    return re.sub(r"[^a-z0-9]+", " ", value.lower()).strip()


def _cid(path: str) -> str:
    """Returns the id of an image's file: 100627-72 of Shoes/Oxfords/Bostonian/100627.72.jpg."""
    return path.strip().rpartition("/")[2].removesuffix(".jpg").replace(".", "-")


def _brand(name: str) -> str:
    """Returns the third folder of a name, without a last dot (stored as %2E on some systems)."""
    folders = name.split("/")
    return unquote(folders[2]).rstrip(". ") if len(folders) == 4 else ""
