"""The commented spec of `mtcon-ray init`, from the template in this module's folder."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template

from mtcon_ray.cli.infer_columns import InferredColumns
from mtcon_ray.cli.infer_folders import InferredFolders
from mtcon_ray.cli.infer_hf import InferredHf
from mtcon_ray.cli.infer_labels import Inferred
from mtcon_ray.errors import ResourceError, SweepError
from mtcon_ray.spec.data.own import LIST_SEPARATOR

MAX_BATCH_SIZE = 64
# With a larger share of missing images the paths are probably wrong.
MAX_ABSENT = 0.1
DEFAULT_BAD = 0.01
# Characters allowed by JSON, but forbidden by YAML or read as the end of a line.
NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufffe\uffff]")


def spec_text(found: InferredColumns | InferredFolders | InferredHf) -> str:
    """Returns a spec in YAML with comments on the user's decisions."""
    # The largest power of two with at least two batches in the train split.
    batch_size = min(MAX_BATCH_SIZE, 1 << max(2, found.num_train // 2).bit_length() - 1)
    lines = _folders(found) if isinstance(found, InferredFolders) else _columns(found)
    template = files("mtcon_ray.cli").joinpath("spec_template.yaml").read_text(encoding="utf-8")
    return Template(template).substitute(
        name=_yaml(found.name),
        data="\n".join(f"  {line}" for line in lines),
        batch_size=f"{batch_size:<12}",
    )


def write_new(path: Path, text: str) -> None:
    """Writes a new file. Raises SweepError if it exists, ResourceError if it cannot be written."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SweepError(
            f"{path} exists already; remove it or write another with --output"
        ) from None
    except OSError as error:
        raise ResourceError(f"--output must be writable, got {path}: {error.strerror}") from None


def _folders(found: InferredFolders) -> Iterator[str]:
    yield "kind: folder"
    yield f"images: {_yaml(str(found.images))}"
    yield from _tasks({level: f"{n} classes" for level, n in found.classes.items()})
    yield "# Never trained on: to hold a level out, name all of them in `levels`."
    yield "held_out: []"


def _columns(found: InferredColumns | InferredHf) -> Iterator[str]:
    if isinstance(found, InferredColumns):
        yield "kind: table"
        yield f"csv: {_yaml(str(found.csv))}"
        yield f"images: {_yaml(str(found.images))}"
    else:
        yield "kind: hf"
        yield f"folder: {_yaml(str(found.folder))}"
    yield f"image_column: {_yaml(found.image_column)}"
    yield from _tasks({label: found.size_of(label) for label in found.tasks})
    yield "# Never trained on; the encoder's knowledge of them is measured once, at the end."
    yield f"held_out: {_yaml(found.held_out)}"
    if isinstance(found, InferredColumns):
        yield from _splits(found)
    yield from _more_labels(found)


def _tasks(sizes: Mapping[str, str]) -> Iterator[str]:
    yield "# One head each, with the number of its classes."
    yield "tasks:"
    yield from (f"  - {_yaml(label)}  # {size}" for label, size in sizes.items())


def _splits(found: InferredColumns) -> Iterator[str]:
    yield "# A column that says train, val or test; null draws 70/10/20."
    if found.incomplete_split:
        yield f"# {found.incomplete_split}."
    yield f"split_column: {_yaml(found.split_column)}"
    yield "# Items with the same value stay in one split when it is drawn."
    yield f"group_column: {_yaml(found.group_column)}"
    share = found.num_absent / found.num_rows
    if DEFAULT_BAD < share <= MAX_ABSENT:
        missing = f"{found.num_absent:,} of {found.num_rows:,} images are not there"
        yield f"# {missing}; their rows are left out."
        yield f"max_bad_images: {math.ceil(share * 100) / 100 + DEFAULT_BAD:.2f}"


def _more_labels(found: Inferred) -> Iterator[str]:
    yield from (f"# Check: {remark}." for remark in found.remarks)
    if found.sets:
        for name in found.sets:
            if name not in found.tasks:
                yield f"# Columns of 0 and 1: put the name {name} into tasks to train on them."
        yield f"multi_hot: {_yaml({name: columns for name, (columns, _) in found.sets.items()})}"
        if found.separator != LIST_SEPARATOR:
            yield f"multi_hot_separator: {_yaml(found.separator)}"
    if found.continuous:
        if not set(found.continuous) <= set(found.tasks):
            yield "# Columns of numbers: put their names into tasks to train on them."
        yield f"continuous: {_yaml(found.continuous)}"
    if found.unused:
        yield f"# Not used: {_yaml(found.unused)}"


def _yaml(value: str | tuple[str, ...] | dict[str, tuple[str, ...] | str] | None) -> str:
    """Returns YAML: JSON with quoted strings, and with the characters of NOT_YAML escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
