"""The commented spec of `mtcon-ray init`, from the template in this module's folder."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

from mtcon_ray.cli.infer_labels import Labels
from mtcon_ray.errors import ResourceError, SweepError
from mtcon_ray.spec.data.own import LIST_SEPARATOR

MAX_BATCH_SIZE = 64
# Characters allowed by JSON, but forbidden by YAML or read as the end of a line.
NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufffe\uffff]")


class Draft(NamedTuple):
    """A spec's name, the size of its train split, and the lines of its section `data`."""

    name: str
    num_train: int
    lines: Sequence[str]

    @property
    def data(self) -> str:
        """The fields of the section `data` in YAML."""
        return "\n".join(f"  {line}" for line in self.lines)

    def spec_text(self) -> str:
        """Returns a spec in YAML with comments on the user's decisions."""
        # The largest power of two with at least two batches in the train split.
        batch_size = min(MAX_BATCH_SIZE, 1 << max(2, self.num_train // 2).bit_length() - 1)
        template = files("mtcon_ray.cli").joinpath("spec_template.yaml").read_text("utf-8")
        name, size = yaml_text(self.name), f"{batch_size:<12}"
        return Template(template).substitute(name=name, data=self.data, batch_size=size)


def write_new(path: Path, text: str) -> None:
    """Writes a new file. Raises SweepError if it exists, ResourceError if it cannot be written."""
    try:
        content = text.encode()  # a path with invalid UTF-8 cannot be written
        with path.open("xb") as file:
            file.write(content)
    except FileExistsError:
        raise SweepError(
            f"{path} exists already; remove it or write another with --output"
        ) from None
    except (OSError, UnicodeEncodeError) as error:
        raise ResourceError(f"--output must be writable, got {path}: {error}") from None


def spec_name(text: str) -> str:
    """Returns a file's name as the name of a spec."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "sweep"


def task_lines(sizes: Mapping[str, str]) -> Iterator[str]:
    """Yields the tasks with their sizes in words."""
    yield "# One head each, with the number of its classes."
    yield "tasks:"
    yield from (f"  - {yaml_text(label)}  # {size}" for label, size in sizes.items())


def label_lines(found: Labels, unused: Collection[str]) -> Iterator[str]:
    """Yields the fields for the labels in columns of a table."""
    yield from task_lines({label: found.size_of(label) for label in found.tasks})
    yield "# Never trained on; the encoder's knowledge of them is measured once, at the end."
    yield f"held_out: {yaml_text(found.held_out)}"
    if found.sets:
        for name in found.sets:
            if name not in found.tasks:
                yield f"# Columns of 0 and 1: put the name {name} into tasks to train on them."
        yield f"multi_hot: {yaml_text({name: each.columns for name, each in found.sets.items()})}"
        if found.separator != LIST_SEPARATOR:
            yield f"multi_hot_separator: {yaml_text(found.separator)}"
    if found.continuous:
        if not {*found.continuous} <= {*found.tasks}:
            yield "# Columns of numbers: put their names into tasks to train on them."
        yield f"continuous: {yaml_text(found.continuous)}"
    if unused:
        yield f"# Not used: {yaml_text([*unused])}"


def yaml_text(value: object) -> str:
    """Returns YAML: JSON with quoted strings, and with the characters of NOT_YAML escaped."""
    text = json.dumps(value, ensure_ascii=False)
    return NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
