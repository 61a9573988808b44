"""Check of a published data set, the cache of its images, and the spec to start from."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from mtcon_ray.base.paths import cache_folder
from mtcon_ray.base.registry import expanded
from mtcon_ray.base.safe_yaml import dump_yaml
from mtcon_ray.data.dataset import open_dataset
from mtcon_ray.data.sources import SOURCES
from mtcon_ray.data.sources.download import DownloadSource
from mtcon_ray.data.splits import SPLITS
from mtcon_ray.display.console import Console
from mtcon_ray.display.plan_text import data_lines
from mtcon_ray.display.terminal import Terminal
from mtcon_ray.errors import DataError, SpecError, nearest
from mtcon_ray.spec.recipes import RECIPES
from mtcon_ray.spec.run_spec import RunSpec, apply_override, parse_spec, set_value
from mtcon_ray.sweep.preparation import check_data


def recipe_spec(kind: str, root: Path, overrides: tuple[str, ...]) -> tuple[str, RunSpec]:
    """Returns the spec of a published data set with its paper's recipe, as YAML and parsed.

    Raises SpecError for a kind without a recipe, or an invalid override.
    """
    if kind not in RECIPES:
        raise SpecError(f"KIND must be a published data set, got {kind!r}{nearest(kind, RECIPES)}")
    data = {"kind": kind, "root": str(expanded(root).absolute())}
    raw: dict[str, Any] = {"version": 1, "name": kind, "data": data}
    for path, value in RECIPES[kind].items():
        set_value(raw, path, value)
    for override in overrides:
        apply_override(raw, override)
    spec = parse_spec(raw)
    # Written out, because a user is likely to change them.
    raw["data"] |= {"tasks": list(spec.data.tasks), "held_out": list(spec.data.held_out)}
    return dump_yaml(raw), spec


def prepare_data(spec: RunSpec, root: Path, *, quiet: bool) -> Iterator[str]:
    """Checks the data of a spec and decodes its images. Yields lines on each.

    The cache of decoded images lies below `root`. Unless quiet, progress is shown on standard
    error. Raises DataError if a part is missing or unusable.
    """
    data, store = spec.data, cache_folder(root)
    source = SOURCES[data.kind](data)
    assert isinstance(source, DownloadSource)
    if missing := source.missing():
        lines = "".join(f"\n  {line}" for line in missing)
        raise DataError(f"the data set in {source.spec.root} is not complete; missing:{lines}")
    checked = check_data(spec, root)
    labels = checked.labels
    yield f"{data.kind} in {source.spec.root}"
    num_items: dict[str, int] = {split: len(labels.rows(split)) for split in SPLITS}
    sizes = {column: labels.size_of(column) for column in (*data.tasks, *data.held_out)}
    for what, text in data_lines(data, num_items, sizes, labels.split_origin):
        yield f"  {what:<10}{text}"
    known = [*source.differences(), *checked.table.warnings]
    yield from (f"warning: {line}" for line in known)
    with Console(Terminal.of(sys.stderr), quiet=quiet) as console:
        console.on_phase("reading the images' files")
        dataset = open_dataset(
            data,
            view_size=spec.views.size,
            store=store,
            progress=console.on_decode,
            checked=checked,
        )
    yield from (f"warning: {line}" for line in dataset.table.warnings if line not in known)
    side, size = dataset.images.shape[1], decimal(dataset.images.nbytes)
    decoded = f"{len(labels):,} of {side} x {side} pixels are decoded"
    yield f"  {'images':<10}{decoded}, {size} in {store}"
