"""Template of the commented spec that `mtcon-ray init` writes."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from mtcon_ray.cli.infer_columns import InferredColumns
from mtcon_ray.cli.infer_folders import InferredFolders
from mtcon_ray.cli.infer_hf import InferredHf
from mtcon_ray.cli.infer_labels import Inferred
from mtcon_ray.data.cells import LIST_SEPARATOR
from mtcon_ray.errors import ResourceError, SweepError

MAX_BATCH_SIZE = 64
# With a larger share of missing images the paths are probably wrong.
MAX_ABSENT = 0.1
DEFAULT_BAD = 0.01
NUMBERS = "# Columns of numbers: put their names into tasks to train on them."
SETS = "# Columns of 0 and 1: put the name {} into tasks to train on them."
# Characters that JSON allows, and that YAML forbids or reads as the end of a line.
NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufffe\uffff]")

TEMPLATE = """\
# A sweep over the temperature of multi-task contrastive training.
# `mtcon-ray schema` describes every field; fields left out here have their defaults.
version: 1
name: {name}
seed: 0

{data}
views:
  size: 64                 # side in pixels; 32 to 48 suits a CPU
  # Colour jitter works against tasks about colour: lower it for those.
  jitter: 0.8
  hue: 0.1
  grayscale: 0.2

model:
  encoder: {{name: small, width: 32}}   # or {{name: resnet18}}, {{name: resnet50}}
  head_dim: 32

method:
  name: mtcon              # or supcon (one task), simclr (no labels)
  temperature: 0.1         # searched below
  weighting: learned       # or equal

train:
  epochs: 20
  batch_size: {batch_size:<12} # items per step, over all workers
  lr: 0.2

evaluate:
  every: 1                 # epochs between validation probes; their mean score is maximised

search:
  sampler: grid            # or tpe, gp, random, which take ranges such as loguniform: [0.03, 1.0]
  space:
    method.temperature: {{grid: [0.03, 0.06, 0.1, 0.2, 0.4, 0.8]}}
  # scheduler: asha        # stops weak trials early; the default from 10 trials on
  repeats: 1               # seeds per configuration

resources: {{workers: 1, cpus: 1, gpus: 0}}   # of one trial
"""
TABLE = """\
data:
  kind: table
  csv: {csv}
  images: {images}
  image_column: {image_column}
  # One head each. The number of classes stands behind each column.
  tasks:
{tasks}
  # Never trained on; the encoder's knowledge of them is measured once, at the end.
  held_out: {held_out}
  # A column that says train, val or test; null draws 70/10/20.
{incomplete_split}  split_column: {split_column}
  # Items with the same value stay in one split when it is drawn.
  group_column: {group_column}
{more_columns}"""
FOLDERS = """\
data:
  kind: folder
  images: {images}
  # One head each: a label per level of folders, the outermost first.
  tasks:
{tasks}
  # Never trained on: to hold a level out, name all of them in `levels`.
  held_out: []
"""
HUGGING_FACE = """\
data:
  kind: hf
  folder: {folder}
  image_column: {image_column}
  # One head each. The number of classes stands behind each column.
  tasks:
{tasks}
  # Never trained on; the encoder's knowledge of them is measured once, at the end.
  held_out: {held_out}
{more_columns}"""


def spec_text(found: InferredColumns | InferredFolders | InferredHf) -> str:
    """Returns a spec in YAML with comments on the user's decisions."""
    # The largest power of two of which the train split fills two batches.
    batch_size = 1 << max(2, found.num_train // 2).bit_length() - 1
    match found:
        case InferredColumns():
            data = _table_text(found)
        case InferredFolders():
            data = _folders_text(found)
        case _:
            data = _hf_text(found)
    batch_size = min(MAX_BATCH_SIZE, batch_size)
    return TEMPLATE.format(name=_yaml(found.name), data=data, batch_size=batch_size)


def _folders_text(found: InferredFolders) -> str:
    tasks = [f"    - {_yaml(level)}  # {n} classes" for level, n in found.classes.items()]
    return FOLDERS.format(images=_yaml(str(found.images)), tasks="\n".join(tasks))


def _hf_text(found: InferredHf) -> str:
    return HUGGING_FACE.format(
        folder=_yaml(str(found.folder)),
        image_column=_yaml(found.image_column),
        tasks=_tasks(found),
        held_out=_yaml(found.held_out),
        more_columns="".join(f"  {line}\n" for line in _more_columns(found)),
    )


def _table_text(found: InferredColumns) -> str:
    return TABLE.format(
        csv=_yaml(str(found.csv)),
        images=_yaml(str(found.images)),
        image_column=_yaml(found.image_column),
        tasks=_tasks(found),
        held_out=_yaml(found.held_out),
        split_column=_yaml(found.split_column),
        incomplete_split=f"  # {found.incomplete_split}.\n" if found.incomplete_split else "",
        group_column=_yaml(found.group_column),
        more_columns="".join(
            f"  {line}\n" for line in (*_missing_images(found), *_more_columns(found))
        ),
    )


def _tasks(found: Inferred) -> str:
    return "\n".join(f"    - {_yaml(label)}  # {found.size_of(label)}" for label in found.tasks)


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


def _missing_images(found: InferredColumns) -> Iterator[str]:
    share = found.num_absent / found.num_rows
    if DEFAULT_BAD < share <= MAX_ABSENT:
        missing = f"{found.num_absent:,} of {found.num_rows:,} images are not there"
        yield f"# {missing}; their rows are left out."
        yield f"max_bad_images: {math.ceil(share * 100) / 100 + DEFAULT_BAD:.2f}"


def _more_columns(found: Inferred) -> Iterator[str]:
    yield from (f"# Check: {remark}." for remark in found.remarks)
    if found.sets:
        offered = [name for name in found.sets if name not in found.tasks]
        yield from map(SETS.format, offered)
        yield f"multi_hot: {_yaml({name: columns for name, (columns, _) in found.sets.items()})}"
        if found.separator != LIST_SEPARATOR:
            yield f"multi_hot_separator: {_yaml(found.separator)}"
    if found.continuous:
        yield from [] if set(found.continuous) <= set(found.tasks) else [NUMBERS]
        yield f"continuous: {_yaml(found.continuous)}"
    if found.unused:
        yield f"# Not used: {_yaml(found.unused)}"


def _yaml(value: str | tuple[str, ...] | dict[str, tuple[str, ...] | str] | None) -> str:
    """Returns YAML: JSON, whose strings are quoted, with the characters of NOT_YAML escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
