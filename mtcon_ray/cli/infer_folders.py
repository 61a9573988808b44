"""Inference of labels from the folders in which images lie."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from mtcon_ray.cli.infer_columns import path_for_spec, spec_name
from mtcon_ray.data.sources.class_folders import FolderSource, folders_of
from mtcon_ray.errors import DataError


@dataclass(frozen=True)
class InferredFolders:
    """A label per level of folders, the outermost first, with its number of classes."""

    name: str
    images: Path
    classes: dict[str, int]
    num_images: int
    num_train: int
    split_origin: str
    left_out: tuple[str, ...]

    def describe(self) -> list[str]:
        """Returns a line for each finding."""
        tasks = ", ".join(f"{level} ({n} classes)" for level, n in self.classes.items())
        return [
            f"images     {self.num_images:,} in {self.images}",
            f"tasks      {tasks}, the names of the folders",
            f"split      {self.split_origin}",
            *(f"left out   {text}" for text in self.left_out),
        ]


def infer_folders(images: Path) -> InferredFolders:
    """Returns the labels named by the folders in a folder or tar of images.

    Raises DataError if it cannot be read, or if images lie at different depths.
    """
    images = path_for_spec(images)
    fields = {"images": str(images), "tasks": ()}
    names = FolderSource(FolderSource.Spec.model_validate(fields)).names
    depths = Counter(len(folders) for folders in folders_of(names)[1])
    depth = max(depths, key=depths.__getitem__, default=0)
    if not depth:
        raise DataError(
            f"the images of {images} must lie in folders named after their classes, got "
            f"{names[0]}; give a CSV with their labels first"
        )
    levels = ("class",) if depth == 1 else tuple(f"level_{i + 1}" for i in range(depth))
    fields["tasks"] = levels
    table = FolderSource(FolderSource.Spec.model_validate(fields)).read_labels()
    return InferredFolders(
        name=spec_name(images.name.partition(".")[0]),
        images=images,
        classes={level: len(table.classes[level]) for level in levels},
        num_images=len(table),
        num_train=len(table.rows("train")),
        split_origin=table.split_origin,
        left_out=table.warnings,
    )
