"""The commented spec of `mtcon-ray init`, from the template in this module's folder."""

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Any, NamedTuple

from mtcon_ray.base.safe_yaml import dump_yaml
from mtcon_ray.errors import ResourceError

MAX_BATCH_SIZE = 64
COLOUR = re.compile("colou?r", re.IGNORECASE)


class Draft(NamedTuple):
    """A spec's name, the size of its train split, its section `data`, and columns not used."""

    name: str
    num_train: int
    data: dict[str, Any]
    unused: Sequence[str] = ()

    def spec_text(self) -> str:
        """Returns a spec in YAML with comments on the user's decisions."""
        # The largest power of two with at least two batches in the train split.
        batch_size = min(MAX_BATCH_SIZE, 1 << max(2, self.num_train // 2).bit_length() - 1)
        template = files("mtcon_ray.cli").joinpath("spec_template.yaml").read_text("utf-8")
        data = indent(dump_yaml(self.data), "  ")
        if self.unused:
            data += "  # Not used:\n" + indent(dump_yaml([*self.unused]), "  # ")
        labels = [*self.data.get("tasks", ()), *self.data.get("held_out", ())]
        is_colour = any(map(COLOUR.search, labels))
        hue, grayscale = (0.02, 0.0) if is_colour else (0.1, 0.2)
        return Template(template).substitute(
            name=f'"{self.name}"', data=data.rstrip(), batch_size=f"{batch_size:<12}",
            hue=hue, grayscale=grayscale,
        )  # fmt: skip


def write_new(path: Path, text: str) -> None:
    """Writes a new file. Raises ResourceError if it exists or cannot be written."""
    try:
        content = text.encode()  # a path with invalid UTF-8 cannot be written
        with path.open("xb") as file:
            file.write(content)
    except (OSError, UnicodeEncodeError) as error:
        raise ResourceError(f"--output must be a new, writable file, got {path}: {error}") from None


def spec_name(text: str) -> str:
    """Returns a file's name as the name of a spec."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._") or "sweep"
