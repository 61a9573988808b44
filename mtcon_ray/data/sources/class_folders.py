"""Data from a folder or tar of images whose labels are the names of the folders around them."""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from mtcon_ray.data.csv_file import encode_columns
from mtcon_ray.data.image_files import IMAGE_ENDINGS, ImageFiles, open_files
from mtcon_ray.data.labels import LabelTable
from mtcon_ray.data.sources.base import SOURCES
from mtcon_ray.data.sources.files import DrawnSplitSpec, FilesSource
from mtcon_ray.data.splits import SPLITS, Split, complete_split, split_names, stratified_split
from mtcon_ray.errors import DataError
from mtcon_ray.registry import LocalPath

MAX_SHOWN = 5


@SOURCES.register("folder")
class FolderSource(FilesSource):
    """A class per folder, a label per level of folders; train, val and test may be the top ones."""

    class Spec(DrawnSplitSpec):
        """Images in folders named after their classes."""

        kind: Literal["folder"] = "folder"
        images: LocalPath = Field(min_length=1, description="folder, .tar or .tar.gz of the images")
        levels: tuple[str, ...] | None = Field(
            None,
            description="names of the levels of folders, the outermost first, without that of "
            "train, val and test; null: tasks, then held_out",
        )

        @model_validator(mode="after")
        def _labels_are_levels(self) -> Self:
            repeated = [name for name, count in Counter(self.level_names).items() if count > 1]
            if repeated:
                raise ValueError(f"levels must not repeat a name, got {repeated[0]!r} twice")
            for name in (*self.tasks, *self.held_out):
                if name not in self.level_names:
                    raise ValueError(
                        f"levels must name all tasks and held-out labels, got "
                        f"{list(self.level_names)} without {name!r}"
                    )
            return self

        @property
        def level_names(self) -> tuple[str, ...]:
            """The names of the levels."""
            return self.levels if self.levels is not None else (*self.tasks, *self.held_out)

    spec: Spec

    @cached_property
    def files(self) -> ImageFiles:
        return open_files(Path(self.spec.images))

    @cached_property
    def _all(self) -> list[str]:
        return sorted(self.files.names())

    @cached_property
    def names(self) -> list[str]:
        found = [name for name in self._all if is_image(name)]
        if not found:
            raise DataError(
                f"data.images must hold images ({', '.join(IMAGE_ENDINGS)}), got "
                f"{self.spec.images} with none"
            )
        self.refuse_outside(found, self.files.root)
        return found

    @cached_property
    def _folders(self) -> tuple[dict[str, Split], np.ndarray]:
        """The splits of `folders_of`, and each image's folder at each level, object [N, levels]."""
        wanted = self.spec.level_names
        split_of, folders = folders_of(self.names)
        if not wanted:  # no labels, so any depth
            return split_of, np.empty((len(folders), 0), dtype=object)
        for name, parts in zip(self.names, folders, strict=True):
            if len(parts) != len(wanted):
                tops = "{" + ",".join(sorted(split_of)) + "}/" if split_of else ""
                raise DataError(
                    f"each image of {self.spec.images} must lie in folders {tops}"
                    f"{'/'.join(wanted)}, got {name}; name every level of folders in data.levels"
                )
        return split_of, np.array(folders, dtype=object).reshape(len(folders), len(wanted))

    def read_labels(self) -> LabelTable:
        columns = dict(zip(self.spec.level_names, self._folders[1].T, strict=True))
        wanted = (*self.spec.tasks, *self.spec.held_out)
        labels, classes = encode_columns({name: columns[name] for name in wanted})
        split, origin = self._read_split()
        return LabelTable(
            names=tuple(self.names),
            labels=labels,
            classes=classes,
            split=split,
            split_origin=origin,
            warnings=self._warnings(),
        )

    def _read_split(self) -> tuple[np.ndarray, str]:
        """Returns each image's split, int8 [N], and where it comes from.

        What top folders do not give is drawn, with the same shares in each class.
        """
        spec, names = self.spec, np.array(self.names, dtype=object)
        split_of, folders = self._folders
        strata = np.array(["/".join(parts) for parts in folders], dtype=object)
        if not split_of:
            drawn = stratified_split(strata, names, spec.split_fractions, spec.seed)
            shares = ", the same shares in each class" if spec.level_names else ""
            return drawn, f"drawn at random from seed {spec.seed}{shares}"
        tops = [name.partition("/")[0] for name in self.names]
        words = ", ".join(sorted(split_of))
        # Two of the three, as of many published data sets, are completed.
        split, is_drawn = complete_split(
            np.array([SPLITS.index(split_of[top]) for top in tops], dtype=np.int8),
            spec.split_fractions,
            lambda rows, shares: stratified_split(strata[rows], names[rows], shares, spec.seed),
        )
        if not is_drawn:
            return split, f"the folders {words}"
        tested = ", ".join(top for top in sorted(split_of) if split_of[top] != "train")
        return split, f"the folders {words}: {tested} is test, val is drawn from train"

    def _warnings(self) -> tuple[str, ...]:
        """Returns a warning if there are files that are neither images nor hidden."""
        others = [n for n in self._all if not is_image(n) and PurePosixPath(n).name[0] != "."]
        if not others:
            return ()
        shown = ", ".join(others[:MAX_SHOWN]) + (", ..." if len(others) > MAX_SHOWN else "")
        return (f"{len(others)} files of {self.spec.images} are not images: {shown}",)


def folders_of(names: Sequence[str]) -> tuple[dict[str, Split], list[list[str]]]:
    """Returns the split that each top folder names, and the folders of each image below these.

    The first is {} if the top folders are not train and at least one other split.
    """
    tops = {name.partition("/")[0] for name in names if "/" in name}
    named = split_names(tops, "")
    is_split = len(named) == len(tops) > 1 and "train" in named.values()
    return (named if is_split else {}), [name.split("/")[is_split:-1] for name in names]


def is_image(name: str) -> bool:
    """Returns True for the name of an image that is not hidden."""
    path = PurePosixPath(name)
    return path.suffix.lower() in IMAGE_ENDINGS and not path.name.startswith(".")
