"""Inference of labels from the folders in which images lie."""

from collections import Counter
from pathlib import Path
from typing import Any

from mtcon_ray.base.registry import expanded
from mtcon_ray.cli.spec_template import Draft, spec_name
from mtcon_ray.data.sources.class_folders import FolderSource, folders_of
from mtcon_ray.errors import DataError


def infer_folders(images: Path) -> Draft:
    """Returns the spec's data section with a label per level of folders, the outermost first.

    Raises DataError if it cannot be read, or if images lie at different depths.
    """
    images = expanded(images).absolute()
    fields: dict[str, Any] = {"images": str(images), "tasks": []}
    names = FolderSource(FolderSource.Spec.model_validate(fields)).names
    depths = Counter(len(folders) for folders in folders_of(names)[1])
    depth = max(depths, key=depths.__getitem__, default=0)
    if not depth:
        raise DataError(
            f"the images of {images} must lie in folders named after their classes, got "
            f"{names[0]}; give a CSV with their labels first"
        )
    fields["tasks"] = ["class"] if depth == 1 else [f"level_{i + 1}" for i in range(depth)]
    table = FolderSource(FolderSource.Spec.model_validate(fields)).read_labels()
    name = spec_name(images.name.partition(".")[0])
    return Draft(name, len(table.rows("train")), {"kind": "folder", **fields, "held_out": []})
