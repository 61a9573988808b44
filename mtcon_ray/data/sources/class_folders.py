"""Data from a folder or tar of images, with the names of the folders around them as labels."""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from mtcon_ray.data.class_names import doubtful_names
from mtcon_ray.data.column import Column
from mtcon_ray.data.image_archive import open_files
from mtcon_ray.data.image_files import ImageFiles
from mtcon_ray.data.image_names import CONVERSION, FORMATS, ROW_ENDINGS, is_hidden, is_image
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.files import FilesSource
from mtcon_ray.data.splits import SPLITS, split_names, stratified_split
from mtcon_ray.data.table_file import encode_classes
from mtcon_ray.errors import DataError
from mtcon_ray.spec.data.base import Split
from mtcon_ray.spec.data.own import FolderSpec

MAX_SHOWN = 5


class FolderSource(FilesSource):
    """A class per folder, a label per level of folders. Top folders may be train, val and test."""

    spec: FolderSpec

    @cached_property
    def files(self) -> ImageFiles:
        return open_files(Path(self.spec.images))

    @cached_property
    def _all(self) -> list[str]:
        return sorted(self.files.names())

    @cached_property
    def names(self) -> list[str]:
        found = [name for name in self._all if is_image(name)]
        if splits := split_folders(found):
            found = [name for name in found if name.partition("/")[0] in splits]
        if not found:
            has_rows = any(name.lower().endswith(ROW_ENDINGS) for name in self._all)
            raise DataError(
                f"data.images {self.spec.images} has no images (files ending in "
                f"{', '.join(FORMATS)})"
                + (f", but Parquet or Arrow files; {CONVERSION}" if has_rows else "")
            )
        return self.inside(found, self.files.root)

    @cached_property
    def _folders(self) -> tuple[dict[str, Split], list[list[str]]]:
        """The splits of `folders_of`, and each image's folder at each level."""
        wanted = self.spec.level_names
        split_of, folders = folders_of(self.names)
        for name, parts in zip(self.names, folders, strict=True):
            if wanted and len(parts) != len(wanted):  # without labels any depth
                tops = "{" + ",".join(sorted(split_of)) + "}/" if split_of else ""
                raise DataError(
                    f"each image of {self.spec.images} must lie in folders {tops}"
                    f"{'/'.join(wanted)}, got {name}; name every level of folders in data.levels"
                )
        return split_of, [parts[: len(wanted)] for parts in folders]

    def read_labels(self) -> LabelTable:
        columns = dict(zip(self.spec.level_names, zip(*self._folders[1], strict=True), strict=True))
        labels, classes, warnings = {}, {}, self._warnings()
        for level in (*self.spec.tasks, *self.spec.held_out):
            labels[level], classes[level] = encode_classes(Column.of(columns[level]))
            warnings += doubtful_names(level, classes[level], labels[level], self.names, "image")
        split, origin = self._read_split()
        return LabelTable(
            tuple(self.names), labels, classes, split, split_origin=origin, warnings=(*warnings,)
        )

    def _read_split(self) -> tuple[np.ndarray, str]:
        """Returns each image's split, int8 [N], and the origin of the splits in words.

        Splits without a top folder are drawn, with the same shares in each class. If train and one
        other split exist, the other is the test split.
        """
        (split_of, folders), spec = self._folders, self.spec
        strata = np.array(["/".join(parts) for parts in folders], dtype=object)
        names = np.array(self.names, dtype=object)

        def draw(rows: np.ndarray, shares: Sequence[float]) -> np.ndarray:
            return stratified_split(strata[rows], names[rows], shares, spec.seed)

        if not split_of:
            words = f"drawn at random from seed {spec.seed}, the same shares in each folder"
            return draw(np.arange(len(strata)), spec.split_fractions), words
        tops = [split_of[name.partition("/")[0]] for name in self.names]
        split = np.array([*map(SPLITS.index, tops)], dtype=np.int8)
        given = f"the folders {', '.join(sorted(split_of))}"
        if {*tops} == {*SPLITS}:
            return split, given
        # Many published data sets have only two of the three splits.
        train = np.flatnonzero(split == SPLITS.index("train"))
        split[:] = SPLITS.index("test")
        both = sum(spec.split_fractions[:2])
        split[train] = draw(train, [share / both for share in spec.split_fractions[:2]])
        tested = ", ".join(word for word in sorted(split_of) if split_of[word] != "train")
        return split, f"{given}: {tested} is test, val is drawn from train"

    def _warnings(self) -> list[str]:
        """Returns a warning of unused files, except files with a hidden name."""
        unused = map(PurePosixPath, sorted({*self._all} - {*self.names}))
        kinds = Counter(f"{n.parent}/*{n.suffix}" for n in unused if not is_hidden(n.name))
        if not kinds:
            return []
        beside = f" or beside {', '.join(tops)}" if (tops := sorted(self._folders[0])) else ""
        shown = [f"{kind} ({number})" for kind, number in kinds.most_common(MAX_SHOWN)]
        return [
            f"{kinds.total()} files of {self.spec.images} are left out (they are not images, in "
            f"hidden folders{beside}): {', '.join(shown)}"
        ]


def split_folders(names: Iterable[str]) -> dict[str, Split]:
    """Returns the split of each top folder named after a split.

    Returns {} if the folders do not name train and another split.
    """
    named = split_names({name.partition("/")[0] for name in names if "/" in name}, "")
    splits = set(named.values())
    return named if "train" in splits and len(splits) > 1 else {}


def folders_of(names: Sequence[str]) -> tuple[dict[str, Split], list[list[str]]]:
    """Returns the split of each top folder named after a split, and the folders of each image.

    The folders of an image do not include the folder of its split.
    """
    split_of = split_folders(names)
    return split_of, [name.split("/")[bool(split_of) : -1] for name in names]
